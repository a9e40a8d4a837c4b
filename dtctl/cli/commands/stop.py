"""dtctl stop"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.announcing import Announced
from dtctl.cli.durations import seconds
from dtctl.cli.options import OutputOption, Scope, Tasks, on_run
from dtctl.cli.watching import chosen
from dtctl.errors import ExitCode

if TYPE_CHECKING:
    from dtctl.render.stopping import StopProgress

LOOK = "dtctl status    shows what is left"

Grace = Annotated[
    str | None,
    typer.Option("--grace", metavar="30s", help="Between SIGTERM and SIGKILL; as in the cluster file if omitted."),
]


@on_run
def stop(scope: Scope, tasks: Tasks = None, grace: Grace = None, output: OutputOption = "text") -> None:
    """Stop tasks (all, if none is named) and make sure that nothing of them is left."""
    from dtctl.operations.stop import StopOrder
    from dtctl.operations.stop import stop as end
    from dtctl.operations.up.launch import controller_name
    from dtctl.render import errors, result
    from dtctl.render.machine import document
    from dtctl.render.stopping import StopProgress

    record = scope.record()
    order = StopOrder(controller_name(), seconds(grace) if grace is not None else None)
    some = chosen(record, tasks)
    before = Announced(scope, record, "stopping", say=output == "text")
    progress = StopProgress(quiet=output == "json", dialled=scope.transport.dialled)
    with scope.left(lambda: still_stopping(progress), LOOK, announced=before):
        with progress:
            outcome = end(record, scope.transport, some, order, progress, before)
        if not tasks and outcome.stopped and not (outcome.errors or outcome.survivors) and outcome.known:
            scope.memory.change(outcome.known, outcome="Stopped")
        if output == "json":
            document.print_json("Stop", document.stop(outcome))
            errors.show_host_errors(outcome.errors)
        else:
            result.show_stop(outcome)
            result.show_without_run(record, outcome.without_run)
    if code := result.stop_exit_code(outcome):
        raise typer.Exit(code)
    raise typer.Exit(ExitCode.OK)


def still_stopping(progress: StopProgress) -> str:
    """What an interrupt leaves to the hosts."""
    if progress.heard:
        return "the hosts have been asked to end the tasks; that is still carried out there"
    return "requests that have reached the hosts are still carried out there"
