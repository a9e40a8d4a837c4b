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
    from dtctl.operations.starting.prepare import make_local, make_plan, scan_code
    from dtctl.operations.starting.secrets import exposure
    from dtctl.render import left_out, tables
    from dtctl.render.machine import document

    cluster = scope.cluster(cluster_file, overrides)
    planned = make_plan(make_local(cluster) if local else cluster, scope.transport.hostname)
    bundle = scan_code(cluster)
    if output == "json":
        document.print_json("Plan", {**document.plan(planned), **document.not_pushed(bundle)})
    else:
        tables.show_plan(planned)
    left_out.show_left_out(bundle)
    left_out.show_exposure(exposure(cluster))
