"""Tables, and the templates and runs that are shown in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from dtctl.operations.runs import KnownRun
from dtctl.render.terminal import console
from dtctl.render.words import fold, local_time

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_NUMBERS = ("FOR", "RESTARTS", "PID", "STEP", "AGE", "SIZE", "SHARDS", "FREED")
_WRAPPED = ("NOTE", "TASKS", "FOUND")


def show_templates(found: Mapping[str, str]) -> None:
    """Name -> when to choose it."""
    grid = table("TEMPLATE", "NOTE")
    for name, about in found.items():
        grid.add_row(name, about)
    print_table(grid)


def show_runs(runs: Sequence[KnownRun]) -> None:
    grid = table("RUN", "STARTED", "STATE", "HOSTS", "TASKS")
    for run in runs:
        states: dict[str, int] = {}
        for state in run.tasks.values():
            states[state.value] = states.get(state.value, 0) + 1
        tasks = ", ".join(f"{number} {state}" for state, number in states.items())
        live = styled("live", "green") if run.live else "ended"
        grid.add_row(run.run, local_time(run.created), live, fold(run.hosts), tasks)
    print_table(grid)


def print_table(grid: Table) -> None:
    """No column is cut: a terminal that is too narrow wraps the lines, and a pipe has no width."""
    from rich.measure import Measurement

    out = console.out()
    needed = Measurement.get(out, out.options.update(max_width=10_000), grid)
    width = max(out.width, needed.minimum) if out.is_terminal else needed.maximum
    console.out(width).print(grid)


def table(*columns: str) -> Table:
    """An empty one without lines; some columns are known to hold numbers, or text that may be wrapped."""
    from rich.table import Table

    grid = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in _NUMBERS else "left"
        grid.add_column(name, justify=justify, overflow="fold", no_wrap=name not in _WRAPPED)
    return grid


def styled(words: str, style: str) -> Text:
    from dtctl.render.terminal.rich_console import text

    return text((words, style))
