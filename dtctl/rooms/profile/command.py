"""dtctl profile"""

from __future__ import annotations

from typing import Annotated

import typer

from dtctl.agent.rooms.profile.records import MOST_SECONDS
from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, rooms
from dtctl.cli.options import Exclude, OutputOption, Scope, Tasks, on_run
from dtctl.cli.watching import chosen
from dtctl.errors import ExitCode


@on_run
def profile(
    scope: Scope,
    tasks: Tasks = None,
    exclude: Exclude = None,
    seconds: Annotated[
        int, typer.Option("--seconds", metavar="N", min=1, max=MOST_SECONDS, help="How long it observes the tasks.")
    ] = 10,
    output: OutputOption = "text",
) -> None:
    """Show what live trainers do for some seconds: where in the program the time goes."""
    record = scope.placed()
    named = chosen(record, tasks, exclude)
    with rooms.profile.screen.waiting(len(named), seconds):
        found = rooms.profile.operation.profile(record, scope.transport, named, seconds)
    if output == "json":
        document.print_json("Profile", rooms.profile.document.profiles(found))
    else:
        rooms.profile.screen.show_profiles(found)
    report_errors(found.errors, others=found.tasks)
    if not found.has_any:
        raise typer.Exit(ExitCode.RUN_FAILED)
