"""HTML made of values: what is not made here is text, and is escaped. What a host says cannot become a tag.

Texts are masked once more: the agent of an older run may have shown more than this one would.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from dtctl.agent.host.secrets import hide_text
from dtctl.render.terminal.safe import lines_of, one_line

_VOID = ("meta", "link", "br", "hr", "wbr")


class Html(str):
    """Text that is HTML already. Made by `tag` and `joined` alone, and of the page's own style sheet."""

    __slots__ = ()


Part = str | Iterable["Part"] | None


def tag(name: str, /, *parts: Part, **attributes: object) -> Html:
    """An element. `class_` is written class, `aria_label` aria-label, `viewBox` as it is; one that is None is left out.

    True stands for an attribute without a value.
    """
    said = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{joined(*parts)}</{name}>")


def joined(*parts: Part) -> Html:
    return Html("".join(_each(parts)))


def preformatted(text: str) -> Html:
    """Lines as they are, each made safe."""
    return joined("\n".join(lines_of(text)))


def _each(parts: Iterable[Part]) -> Iterable[str]:
    for part in parts:
        if part is None:
            continue
        if isinstance(part, Html):
            yield part
        elif isinstance(part, str):
            yield html.escape("\n".join(one_line(line) for line in hide_text(part).split("\n")), quote=False)
        else:
            yield from _each(part)


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    if name in ("title", "aria-label"):
        value = hide_text(str(value))
    return f' {name}="{html.escape(one_line(str(value)))}"'
