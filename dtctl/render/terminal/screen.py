"""A table that is drawn again in place, for `status --watch`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dtctl.operations.status import RunStatus
from dtctl.render.errors import show_host_errors
from dtctl.render.health.findings import problem_lines
from dtctl.render.status import more_lines, show_status, status_table, summary
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import Redrawn, moving
from dtctl.transport.group_errors import rows


@contextmanager
def redrawn(*, every: bool = False) -> Iterator[Callable[[RunStatus], None]]:
    """Off a terminal each state is simply printed below the last. `every`: no task is folded into another's line."""
    out = console.out()
    if not out.is_terminal:

        def print_it(status: RunStatus) -> None:
            if status.time:
                show_status(status, every=every)
            show_host_errors(status.errors)

        yield print_it
        return
    from rich.console import Group
    from rich.live import Live

    table = Redrawn(lambda: Live(console=out, auto_refresh=False))
    with moving(table):

        def draw(status: RunStatus) -> None:
            away = [row.text for row in rows(status.errors)]
            if status.time:
                tasks = status_table(status, every=every)
                shown = Group(summary(status), *problem_lines(status), tasks, *more_lines(status), *away)
            else:
                shown = Group(*away)
            table.display.update(shown, refresh=True)

        yield draw
