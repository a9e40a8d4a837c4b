"""The whole screen as lines, for a terminal of some size. Pure: what is known and chosen goes in, lines come out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dtctl.operations.metrics import Point
from dtctl.render.top.head import answer, curves
from dtctl.render.top.history import Courses
from dtctl.render.top.layout import Layout, layout
from dtctl.render.top.problems import wrong
from dtctl.render.top.rows import Row, rows
from dtctl.render.top.snapshot import Choice, Line, Moment, safe

_LEAST_ROWS = 6
"""Lines that the table gets, whatever is wrong."""

_MOST_OF_ONE = 3
"""Lines of one trouble."""


@dataclass(frozen=True)
class Page:
    """`top`: the answer, the curves, and what is wrong."""

    top: tuple[Line, ...]
    heading: Line
    layout: Layout
    rows: tuple[Row, ...]

    def lines(self) -> list[Line]:
        return [self.layout.line(row) for row in self.rows]


def page(
    moment: Moment,
    courses: Courses,
    points: Sequence[Point],
    choice: Choice,
    size: tuple[int, int],
    *,
    fine: bool = True,
) -> Page:
    """`size`: columns and rows of the terminal; `points`: of the loss in event files."""
    width, height = size
    shown = rows(moment, courses, choice, fine=fine)
    moved = curves(courses, points, width, fine=fine)
    top = [*wrapped(answer(moment), width)[: max(1, height // 4)], *([moved] if moved else [])]
    top += _troubles(moment, width, max(1, height - len(top) - _LEAST_ROWS))
    if choice.words:
        top += [[(f"filter: {safe(choice.words)}   {len(shown)} of {len(moment.status.tasks)} rows", "reverse")]]
    columns = layout(shown, width)
    return Page(tuple(top), columns.heading(choice, fine=fine), columns, tuple(shown))


def _troubles(moment: Moment, width: int, room: int) -> list[Line]:
    """Whole ones, as many as there is room for: the first always."""
    for most in range(room, 0, -1):
        lines = [part for line in wrong(moment, most) for part in _some(wrapped(line, width))]
        if len(lines) <= room or most == 1:
            return lines
    return []


def _some(lines: list[Line]) -> list[Line]:
    if len(lines) <= _MOST_OF_ONE:
        return lines
    return [*lines[: _MOST_OF_ONE - 1], [*lines[_MOST_OF_ONE - 1][:-2], (" ...", "dim")]]


def wrapped(line: Line, width: int) -> list[Line]:
    """In lines of at most so many columns, at blanks where there are some; those that follow are indented."""
    from rich.cells import cell_len

    found: list[Line] = [[]]
    left = width
    for text, style in line:
        for word in re.findall(r"\S+|\s+", text):
            needed = cell_len(word)
            if needed > left and found[-1]:
                found.append([("  ", "")])
                left = width - 2
                if word.isspace():
                    continue
            for piece in _pieces(word, left, width - 2):
                if cell_len(piece) > left:
                    found.append([("  ", "")])
                    left = width - 2
                found[-1].append((piece, style))
                left -= cell_len(piece)
    return found


def _pieces(word: str, first: int, rest: int) -> list[str]:
    """A word that is longer than a line, in pieces that are not."""
    from rich.cells import chop_cells

    if len(word) <= first:
        return [word]
    return chop_cells(word, max(1, min(first, rest)))
