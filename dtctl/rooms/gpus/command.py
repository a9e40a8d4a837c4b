"""dtctl gpus"""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from dtctl.cli.completion import complete_places
from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, operations, rooms
from dtctl.cli.options import Exclude, OutputOption, Scope, on_run


@on_run
def gpus(
    scope: Scope,
    where: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK|@HOST]...",
            help="The hosts, or the tasks on them; every host of the cluster file if omitted.",
            autocompletion=complete_places,
        ),
    ] = None,
    exclude: Exclude = None,
    output: OutputOption = "text",
) -> None:
    """Show the GPUs of every host, who uses them, and how many are free; no run is needed."""
    placed = scope.placed(for_its_hosts=True)
    record = dataclasses.replace(placed, hosts={**placed.hosts, **placed.others}, others={})
    hosts = operations.selection.select_hosts(record, where or [f"@{name}" for name in record.hosts], exclude or [])
    with scope.dialling():
        found = rooms.gpus.operation.gpus(record, scope.transport, hosts)
    if output == "json":
        document.print_json("Gpus", rooms.gpus.document.gpus(found))
    elif found.results:
        rooms.gpus.screen.show_gpus(found.results)
    report_errors(found.errors, others=found.results)
