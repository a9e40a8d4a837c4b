"""Where symbolic links of the tree lead: only those that stay inside mean the same on another machine."""

from __future__ import annotations

from collections.abc import Mapping

_MOST_LINKS = 40
"""As many as Linux follows in one path."""


def leads_outside(path: str, links: Mapping[str, str]) -> bool:
    """Whether the link `path`, followed as the kernel does, ever leaves the tree.

    `links` are all links of the tree: {path: target}. What one leads to need not exist, and one that leads back to
    itself stays inside.
    """
    here = path.split("/")[:-1]
    todo = links[path].split("/")[::-1]
    if links[path].startswith("/"):
        return True
    followed = 0
    while todo:
        word = todo.pop()
        if word in ("", "."):
            continue
        if word == "..":
            if not here:
                return True
            here.pop()
            continue
        here.append(word)
        target = links.get("/".join(here))
        if target is not None:
            followed += 1
            if followed > _MOST_LINKS:
                return False
            if target.startswith("/"):
                return True
            here.pop()
            todo += target.split("/")[::-1]
    return False
