"""dtctl runs"""

from __future__ import annotations

from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Scope, on_cluster


@on_cluster
def runs(scope: Scope, output: OutputOption = "text") -> None:
    """List the cluster's runs that its hosts know."""
    from dtctl.operations.runs import known_runs
    from dtctl.render import errors, tables
    from dtctl.render.awaiting import dialling
    from dtctl.render.machine import document

    record = scope.record()
    with dialling(scope.transport.dialled, scope.transport.failed):
        known = known_runs(record, scope.transport)
    if output == "json":
        document.print_json("Runs", document.known_runs(known))
    elif known.runs:
        tables.show_runs(known.runs)
    elif not known.errors and not known.damaged:
        errors.note("no run yet", "dtctl up    starts one")
    for one in known.damaged:
        hint = "dtctl down    ends and removes what is left of the cluster's runs, this one too"
        errors.show_warning(f"{one.run} on {one.host} is damaged: {one.problem}", hint=hint)
    errors.show_host_errors(known.errors)
    exit_for(known.errors, others=known.runs)
