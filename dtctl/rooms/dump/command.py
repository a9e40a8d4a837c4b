"""dtctl dump"""

from __future__ import annotations

import typer

from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, rooms
from dtctl.cli.options import Exclude, OutputOption, Scope, Tasks, on_run
from dtctl.cli.watching import chosen
from dtctl.errors import ExitCode


@on_run
def dump(scope: Scope, tasks: Tasks = None, exclude: Exclude = None, output: OutputOption = "text") -> None:
    """Show the Python stacks of live trainers without stopping them."""
    record = scope.placed()
    found = rooms.dump.operation.dump(record, scope.transport, chosen(record, tasks, exclude))
    if output == "json":
        document.print_json("Dump", rooms.dump.document.dumps(found))
    else:
        rooms.dump.screen.show_dumps(found)
    report_errors(found.errors, others=found.tasks)
    if not found.has_stacks:
        raise typer.Exit(ExitCode.RUN_FAILED)
