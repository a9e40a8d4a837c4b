"""dtctl status"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import ExitCode

if TYPE_CHECKING:
    from dtctl.operations.status import RunStatus


@on_run
def status(
    scope: Scope,
    output: OutputOption = "text",
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until Ctrl-C.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="A line for each task, where a terminal has no room for all, too.")
    ] = False,
) -> None:
    """Show how the run stands, what is wrong and what to type, its tasks, and the newest checkpoint."""
    from dtctl.operations.status import status as ask
    from dtctl.render.awaiting import dialling

    record = scope.record()
    if watch and output == "text":
        from dtctl.render.terminal.screen import redrawn

        with redrawn(every=every) as screen:
            while True:
                screen(ask(record, scope.transport))
                time.sleep(2.0)
    with dialling(scope.transport.dialled, scope.transport.failed):
        found = ask(record, scope.transport)
    scope.remember_end(found)
    _show(found, output, every=every)


def _show(found: RunStatus, output: OutputOption, *, every: bool) -> None:
    from dtctl.render import errors, result
    from dtctl.render import status as shown
    from dtctl.render.machine import document, status

    if output == "json" and found.time:
        document.print_json("RunStatus", status.run_status(found))
    elif found.time:
        shown.show_status(found, every=every)
        result.show_away(found)
        if found.coordination is None and found.going_on_after_the_end:
            tasks = ", ".join(map(str, found.going_on_after_the_end))
            errors.note(f"still running: {tasks}", "dtctl stop    ends them")
    errors.show_host_errors(found.errors)
    result.show_without_run(found.record, found.without_run)
    exit_for(found.errors, others=found.time)
    if not found.time:
        errors.note("  dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)
