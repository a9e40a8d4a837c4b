"""Tables on a terminal: as narrow as it is, and never cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dtctl.render.terminal import console

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


_NUMBERS = (
    *("FOR", "RESTARTS", "PID", "STEP", "AGE", "SIZE", "SHARDS", "FREED"),
    *("LAST", "MIN", "MAX", "POINTS", "RATE", "LOSS", "OUTPUT", "CPU", "MEMORY", "GPU USE", "GPU MEMORY"),
)
_WIDEST = 10_000
_WRAPPED = ("NOTE", "TASKS", "FOUND")


def table(
    columns: Mapping[str, Sequence[str | Text]], *, dropped: Sequence[str] = (), least_note: int | None = None
) -> Table:
    """Headings and what stands below them. A terminal that is too narrow goes without `dropped`, the first ones first.

    `least_note`: the width of a column NOTE that the other columns give way to.
    """
    shown = dict(columns)
    grid = _grid(shown, least_note)
    for name in dropped:
        if fits(grid):
            return grid
        if shown.pop(name, None) is not None:
            grid = _grid(shown, least_note)
    return grid if fits(grid) else _grid(shown, None)


def _grid(columns: Mapping[str, Sequence[str | Text]], least_note: int | None) -> Table:
    """Without lines; some columns are known to hold numbers, or text that may be wrapped."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name, cells in columns.items():
        widest = max((len(str(cell)) for cell in cells), default=0)
        grid.add_column(
            name,
            justify="right" if name in _NUMBERS else "left",
            overflow="fold",
            no_wrap=name not in _WRAPPED,
            min_width=min(least_note, widest) if least_note and widest and name == "NOTE" else None,
        )
    for row in zip(*columns.values(), strict=True):
        grid.add_row(*row)
    return grid


def fits(grid: Table) -> bool:
    """Whether no line has to be folded; a pipe takes any."""
    return not console.out().is_terminal or _narrowest(grid) <= console.out().width


def print_table(grid: Table) -> None:
    """No column is cut: a terminal that is too narrow wraps the lines, and a pipe has no width."""
    out = console.out()
    console.out(max(out.width, _narrowest(grid)) if out.is_terminal else _WIDEST).print(grid)


def _narrowest(grid: Table) -> int:
    from rich.measure import Measurement

    out = console.out()
    return Measurement.get(out, out.options.update(max_width=_WIDEST), grid).minimum


def styled(words: str, style: str) -> Text:
    from dtctl.render.terminal.rich_console import text

    return text((words, style))
