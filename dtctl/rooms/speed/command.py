"""dtctl speed"""

from __future__ import annotations

from typing import Annotated

import typer

from dtctl.agent.rooms.speed.records import MOST_MINUTES
from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, rooms
from dtctl.cli.options import OutputOption, Scope, on_run


@on_run
def speed(
    scope: Scope,
    minutes: Annotated[
        int, typer.Option("--minutes", metavar="N", min=1, max=MOST_MINUTES, help="Judge the last N minutes.")
    ] = 5,
    output: OutputOption = "text",
) -> None:
    """Find out why a run is slow, and what would make it faster."""
    record = scope.placed()
    with scope.dialling():
        found = rooms.speed.operation.speed(record, scope.transport, minutes)
    if output == "json":
        document.print_json("Speed", rooms.speed.document.speed(found))
    elif found.run is not None:
        rooms.speed.screen.show_speed(found)
    report_errors(found.errors, others=found.run is not None)
