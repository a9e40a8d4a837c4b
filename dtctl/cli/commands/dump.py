"""dtctl dump"""

from __future__ import annotations

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, Tasks, on_run
from dtctl.cli.watching import chosen
from dtctl.errors import ExitCode


@on_run
def dump(scope: Scope, tasks: Tasks = None, output: OutputOption = "text") -> None:
    """Show where live trainers are: the Python stacks of their threads; they go on meanwhile."""
    from dtctl.operations.dump import dump as read
    from dtctl.render import dump, errors
    from dtctl.render.machine import document
    from dtctl.render.machine import dump as machine

    record = scope.record()
    found = read(record, scope.transport, chosen(record, tasks))
    if output == "json":
        document.print_json("Dump", machine.dumps(found))
    else:
        dump.show_dumps(found)
    errors.show_host_errors(found.errors)
    exit_for(found.errors, others=found.tasks)
    if not found.has_stacks:
        raise typer.Exit(ExitCode.RUN_FAILED)
