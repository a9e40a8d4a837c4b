"""Rows as lines of a terminal: a narrow one gets fewer columns, and the reason of a failure stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dtctl.render.top.columns import COLUMNS, Column
from dtctl.render.top.rows import Row
from dtctl.render.top.snapshot import Choice, Line

GAP = 2
LEAST_NOTE = 16
"""Columns that a note gets before any other column."""


@dataclass(frozen=True)
class Layout:
    """The columns that are shown, and how wide each is."""

    columns: tuple[tuple[Column, int], ...]

    def heading(self, choice: Choice, *, fine: bool = True) -> Line:
        """The column that the rows are sorted by stands out; the order of the run has no mark."""
        down, up = ("\u25be", "\u25b4") if fine else ("v", "^")
        line: Line = []
        for column, width in self.columns:
            name = column.heading if not column.heading.startswith(" ") else ""
            chosen = column.heading == choice.sort and (choice.backwards or choice.sort != COLUMNS[0].heading)
            mark = up if choice.backwards else down
            shown = _aligned(f"{name}{mark}" if chosen else name, width, column)
            line += [(shown, "bold" if chosen else "dim"), (" " * GAP, "")]
        return line[:-1]

    def line(self, row: Row) -> Line:
        line: Line = []
        for column, width in self.columns:
            style = row.style if column.heading in ("STATE", "NOTE") and row.style != "green" else ""
            style = row.style if column.heading == "STATE" else style
            line += [(_aligned(row.cells[column.heading], width, column), style), (" " * GAP, "")]
        return line[:-1]


def layout(rows: Sequence[Row], width: int) -> Layout:
    """Columns without a word are left out, others when there is no room; what is left over is the note's."""
    wanted = {column.heading: _width(column, rows) for column in COLUMNS}
    shown = [column for column in COLUMNS if wanted[column.heading]]

    def needed() -> int:
        note = min(wanted["NOTE"], LEAST_NOTE)
        return sum(wanted[one.heading] + GAP for one in shown if one.heading != "NOTE") + note

    while needed() > width and any(column.spare for column in shown):
        shown.remove(max(shown, key=lambda column: column.spare))
    taken = sum(wanted[one.heading] + GAP for one in shown if one.heading != "NOTE")
    wanted["NOTE"] = max(0, width - taken)
    return Layout(tuple((column, wanted[column.heading]) for column in shown))


def _width(column: Column, rows: Sequence[Row]) -> int:
    """0 where no row has anything to say in it; room for the mark of the order in its heading."""
    from rich.cells import cell_len

    widest = max((cell_len(row.cells[column.heading]) for row in rows), default=0)
    if not widest and column.heading not in ("TASK", "STATE"):
        return 0
    if column.key is None:  # a note, or a curve without a heading
        return widest
    return max(widest, len(column.heading) + 1)


def _aligned(text: str, width: int, column: Column) -> str:
    """In exactly so many columns of the terminal; what is cut ends with a mark."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + ">" if width > 1 else set_cell_size(text, width)
    blank = " " * (width - cell_len(text))
    return blank + text if column.align == "right" else text + blank
