"""dtctl checkpoints"""

from __future__ import annotations

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run


@on_run
def checkpoints(scope: Scope, output: OutputOption = "text") -> None:
    """List the run's checkpoints, as found in the files on the hosts."""
    from dtctl.operations.status import status_of_hosts
    from dtctl.render import checkpoints as shown
    from dtctl.render import errors
    from dtctl.render.machine import document

    found = status_of_hosts(scope.record(), scope.transport)
    if output == "json":
        body = {"run": found.record.run, "checkpoints": [document.checkpoints(one) for one in found.checkpoints]}
        document.print_json("Checkpoints", body)
    else:
        shown.show_checkpoints(found.checkpoints, found.time)
        if not found.checkpoints and not found.errors:
            errors.note("no checkpoint directory: set dirs.output or checkpoint.dir in the cluster file")
    errors.show_host_errors(found.errors)
    exit_for(found.errors, others=found.time)
