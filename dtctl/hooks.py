"""Who is told of a run, as a cluster file says it: by a post of the coordinator's, or by a command on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records import hooks as records

EVENTS = records.EVENTS
"""What may be told."""

VALUE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""${NAME}: the value of a variable, which may be a secret."""

_MADE = re.compile(r"[A-Za-z0-9_-]{32}")
"""In an address: what looks made by a machine."""

_SECRET_HEADER = re.compile(r"(?i)^(?:authorization|cookie)$|token|key|secret")


@dataclass(frozen=True)
class Hook:
    """Either `post` or `run` says how it is told."""

    name: str
    on: tuple[str, ...]
    """Of EVENTS."""
    post: str | None = None
    """An address, with ${NAME} in it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The same of the values."""
    run: tuple[str, ...] = ()
    """The words of a command."""
    timeout_s: float = 10.0

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of those whose values it needs."""
        texts = [self.post or "", *self.headers.values()]
        return tuple(dict.fromkeys(name for text in texts for name in VALUE.findall(text)))

    def filled(self, values: Mapping[str, str]) -> records.Post:
        """As its coordinator gets it."""

        def fill(text: str) -> str:
            return VALUE.sub(lambda found: values[found.group(1)], text)

        return {
            "name": self.name,
            "on": list(self.on),  # type: ignore[arg-type]  # the file has been checked
            "url": fill(self.post or ""),
            "headers": {name: fill(value) for name, value in self.headers.items()},
            "timeout_s": self.timeout_s,
        }


def problem_of_url(url: str) -> str:
    """What was expected in place of an address, whose variables may have no values yet; empty where it will do."""
    known = VALUE.sub("x", url)
    return "" if VALUE.match(url) else records.problem_of_url(known)


def problem_of_post(post: records.Post) -> str:
    """The same of one with its values, in words that show none of them."""
    from dtctl.agent.records.kinds import Wrong, checked

    try:
        checked(records.Post, dict(post))
    except Wrong as wrong:
        return wrong.expected
    return ""


def tokens_in(hook: Hook) -> Iterator[str]:
    """Keys of the hook whose texts look as if they held a secret."""
    if hook.post and not VALUE.search(hook.post) and (hide_text(hook.post) != hook.post or _MADE.search(hook.post)):
        yield "post"
    for name, value in hook.headers.items():
        if _SECRET_HEADER.search(name) and not VALUE.search(value):
            yield name
