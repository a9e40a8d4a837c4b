"""Bars and curves as SVG that grows with its page: shapes alone, as text would be stretched with them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtctl.render.report.html import Html, joined, tag

WIDTH, HEIGHT = 1000.0, 100.0
_THINNEST = 1.5
"""Of a bar that has to be seen."""


def bars(label: str, described: str, parts: Sequence[tuple[str, float, float, str]], *, cut: bool = False) -> Html:
    """`parts`: kind, where it begins and ends between 0 and 1, and what a pointer on it is told.

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
