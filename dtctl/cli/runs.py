"""dtctl runs"""

from __future__ import annotations

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_run


@on_run
def runs(scope: Scope, output: OutputOption = "text") -> None:
    """List the cluster's runs that its hosts know."""
    from dtctl.operations.runs import known_runs
    from dtctl.render import errors, machine, tables

    found, failed = known_runs(scope.record(), scope.transport)
    if output == "json":
        machine.print_json("Runs", {"runs": [machine.known_run(run) for run in found]})
    elif found:
        tables.show_runs(found)
    elif not failed:
        errors.note("no run yet", "dtctl up    starts one")
    errors.show_host_errors(failed)
    exit_for(failed, others=found)
