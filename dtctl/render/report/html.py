"""HTML made of values: what is not made here is text, and is escaped. What a host says cannot become a tag.

Texts are masked once more: the agent of an older run may have shown more than this one would.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dtctl.agent.host.secrets import hide_text
from dtctl.render.format import count
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
    text = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Html(f"<{name}{text}>")
    return Html(f"<{name}{text}>{joined(*parts)}</{name}>")


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


@dataclass(frozen=True)
class Column:
    """A heading, and the class of its cells: number, nowrap, wide."""

    heading: str
    kind: str | None = None


def scrolled(caption: str, columns: Sequence[Column | str], rows: Sequence[Sequence[str]], *, most: int = 1000) -> Html:
    """The first cell of each row is its heading. Of more rows than `most` the last are shown."""
    named = [one if isinstance(one, Column) else Column(one) for one in columns]
    left = max(0, len(rows) - most)
    head = tag("tr", [tag("th", one.heading, scope="col", class_=one.kind) for one in named])
    body = [_row(named, row) for row in rows[left:]]
    more = f" (the last {most}; {count(left, 'other')} left out)" if left else ""
    table = tag("table", tag("caption", caption + more), tag("thead", head), tag("tbody", body))
    return joined(tag("div", table, class_="scroll", role="region", aria_label=caption, tabindex="0"))


def _row(columns: Sequence[Column], row: Sequence[str]) -> Html:
    first, *rest = zip(columns, row, strict=True)
    cells = [tag("td", cell, class_=column.kind) for column, cell in rest]
    return tag("tr", tag("th", first[1], scope="row"), cells)


WIDTH, HEIGHT = 1000.0, 100.0
_THINNEST = 1.5
"""Of a bar that has to be seen."""


def bars(label: str, described: str, parts: Sequence[tuple[str, float, float, str]], *, cut: bool = False) -> Html:
    """`parts`: kind, where it begins and ends between 0 and 1, and the text that a pointer on it shows.

    `described` is what a screen reader says. `cut`: with a gap between two.
    """
    drawn = [_bar(*part, cut=cut) for part in parts]
    return _svg(label, described, drawn, 10.0)


def key(kind: str) -> Html:
    """The colour of a kind, for a legend."""
    square = tag("rect", x=0, y=0, width=10, height=10, class_=f"f-{kind}")
    return tag("svg", square, viewBox="0 0 10 10", aria_hidden="true", focusable="false")


def curves(label: str, described: str, lines: Sequence[Sequence[tuple[float, float | None]]]) -> Html:
    """Each point between 0 and 1 in both directions, upwards; None is a gap."""
    grid = [tag("line", x1=0, x2=_number(WIDTH), y1=_number(y), y2=_number(y), class_="grid") for y in (HEIGHT / 2,)]
    drawn = [
        tag("path", d=_path(points), class_=f"k k{number % 6}") for number, points in enumerate(lines) if _path(points)
    ]
    return _svg(label, described, [*grid, *drawn], HEIGHT, class_="chart")


def scaled(value: float, low: float, high: float) -> float | None:
    """Where a number lies between two others; None of what is no finite number."""
    if not math.isfinite(value):
        return None
    across = high / 2 - low / 2  # the whole may be more than a number can hold
    return min(1.0, max(0.0, (value / 2 - low / 2) / across)) if across > 0 else 0.5


def _svg(label: str, described: str, drawn: Sequence[Html], height: float, class_: str | None = None) -> Html:
    return tag(
        "svg",
        tag("title", label),
        tag("desc", described),
        joined(drawn),
        role="img",
        aria_label=f"{label}: {described}",
        viewBox=f"0 0 {_number(WIDTH)} {_number(height)}",
        preserveAspectRatio="none",
        class_=class_,
    )


def _bar(kind: str, begin: float, end: float, hint: str, *, cut: bool) -> Html:
    x = min(max(begin, 0.0), 1.0) * WIDTH
    width = max(_THINNEST, min(max(end, 0.0), 1.0) * WIDTH - x)
    x = min(x, WIDTH - width)
    classes = f"f-{kind} cut" if cut and width > 8 else f"f-{kind}"
    return tag("rect", tag("title", hint), x=_number(x), y=0, width=_number(width), height=10, class_=classes)


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    """A single point between gaps is a dot: a line of no length with round ends."""
    words: list[str] = []
    pen = False
    for x, y in points:
        if y is None:
            pen = False
            continue
        place = f"{_number(x * WIDTH)} {_number(HEIGHT * (0.96 - 0.92 * y))}"
        words.append(f"L{place}" if pen else f"M{place}L{place}")
        pen = True
    return "".join(words)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
