"""dtctl plan"""

from __future__ import annotations

from dtctl.cli.options import ClusterFile, Local, OutputOption, Overrides, Scope, on_cluster


@on_cluster
def plan(
    scope: Scope,
    cluster_file: ClusterFile = None,
    overrides: Overrides = None,
    local: Local = False,
    output: OutputOption = "text",
) -> None:
    """Print what `up` would run and where; nothing is contacted."""
    show(scope, cluster_file, overrides, local=local, output=output)


def show(scope: Scope, cluster_file: ClusterFile, overrides: Overrides, *, local: bool, output: OutputOption) -> None:
    from dtctl.operations.prepare import make_local, make_plan
    from dtctl.render import machine, tables

    cluster = scope.cluster(cluster_file, overrides)
    planned = make_plan(make_local(cluster) if local else cluster, scope.transport.hostname)
    if output == "json":
        machine.print_json("Plan", machine.plan(planned))
    else:
        tables.show_plan(planned)
