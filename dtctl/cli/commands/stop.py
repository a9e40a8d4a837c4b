"""dtctl stop"""

from __future__ import annotations

from typing import Annotated

import typer

from dtctl.cli.announcing import announced
from dtctl.cli.durations import seconds
from dtctl.cli.options import OutputOption, Scope, Tasks, on_run
from dtctl.cli.watching import chosen
from dtctl.errors import ExitCode

Grace = Annotated[
    str | None,
    typer.Option("--grace", metavar="30s", help="Between SIGTERM and SIGKILL; as in the cluster file if omitted."),
]


@on_run
def stop(scope: Scope, tasks: Tasks = None, grace: Grace = None, output: OutputOption = "text") -> None:
    """Stop tasks (all, if none is named) and make sure that nothing of them is left."""
    from dtctl.operations.starting.prepare import controller_name
    from dtctl.operations.stop import StopOrder
    from dtctl.operations.stop import stop as end
    from dtctl.render import errors, result
    from dtctl.render.machine import document
    from dtctl.render.words import fold

    record = scope.record()
    by = controller_name()
    order = StopOrder(by, seconds(grace) if grace else None)
    before = announced(scope, record, "stopping", say=output == "text")
    try:
        outcome = end(record, scope.transport, chosen(record, tasks), order, before)
    except KeyboardInterrupt:
        errors.note(
            "interrupted: requests that have reached the hosts are still carried out there",
            "dtctl status    shows what is left",
        )
        raise
    if not tasks and outcome.stopped and not (outcome.errors or outcome.survivors) and outcome.known:
        scope.memory.change(outcome.known, outcome="Stopped")
    if output == "json":
        document.print_json("Stop", document.stop(outcome))
    else:
        result.show_stop(outcome)
        if outcome.without_run:
            errors.note(f"no run of {record.cluster} on {fold(outcome.without_run)}")
    if code := result.stop_exit_code(outcome):
        raise typer.Exit(code)
    raise typer.Exit(ExitCode.OK)
