"""dtctl wait"""

from __future__ import annotations

from typing import Annotated

import typer

from dtctl.cli.durations import seconds
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.cli.watching import finish, watch


@on_run
def wait(
    scope: Scope,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="2h", help="Give up after this long (exit code 124).")
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Wait for the end of the run; its result is the exit code."""
    from dtctl.operations.logs import LogRequest

    record = scope.record()
    status = watch(scope, record, LogRequest(()), None, timeout_s=seconds(timeout) if timeout is not None else None)
    if output == "json":
        from dtctl.render.machine import document
        from dtctl.render.machine.status import run_status
        from dtctl.render.result import ended_exit_code, show_ended

        document.print_json("RunStatus", run_status(status))
        show_ended(status)
        raise typer.Exit(ended_exit_code(status))
    finish(status)
