"""dtctl restart"""

from __future__ import annotations

from typing import Annotated

import typer

from dtctl.cli.announcing import Announced
from dtctl.cli.completion import complete_tasks
from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.cli.watching import chosen


@on_run
def restart(
    scope: Scope,
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK...", help="worker:1, worker, @HOST.", autocompletion=complete_tasks)
    ],
    output: OutputOption = "text",
) -> None:
    """Stop tasks and start them again within their run, on the same addresses."""
    from dtctl.operations.restart import restart as start_again
    from dtctl.operations.up.launch import controller_name
    from dtctl.render import errors
    from dtctl.render.machine import document, results
    from dtctl.render.result import show_away, show_restarted

    record = scope.record()
    some, before = chosen(record, tasks), Announced(scope, record, "restarting", say=output == "text")
    again = "the hosts start again what they were asked to"
    with scope.left(again, "dtctl status    shows how far it is", announced=before):
        outcome = start_again(record, scope.transport, some, by=controller_name(), before=before)
        if output == "json":
            document.print_json("Restart", results.restart(outcome))
        else:
            show_restarted(outcome)
            show_away(outcome)
        errors.show_host_errors(outcome.errors)
    exit_for(outcome.errors, others=outcome.tasks)
