"""dtctl check"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dtctl.cli.consent import may_start
from dtctl.cli.exits import exit_for
from dtctl.cli.options import (
    ClusterFile,
    Local,
    OutputOption,
    Overrides,
    PortsFrom,
    Quiet,
    Scope,
    on_cluster,
    with_ports_from,
)
from dtctl.errors import ExitCode

FirewallKind = Literal["nftables", "iptables", "ufw"]


@on_cluster
def check(
    scope: Scope,
    cluster_file: ClusterFile = None,
    overrides: Overrides = None,
    local: Local = False,
    ports_from: PortsFrom = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also what takes seconds and loads the hosts: imports, multiplications.")
    ] = False,
    network_speed: Annotated[
        bool, typer.Option("--network-speed", help="Also measure bandwidth and latency between ps and workers.")
    ] = False,
    print_firewall: Annotated[
        FirewallKind | None,
        typer.Option("--print-firewall", help="Only print rules that let the cluster's hosts in, and nobody else."),
    ] = None,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Look at every host before a start: network, storage, software, machine. Tell what is wrong, and what to type."""
    from dtctl.operations.checks.checking import check as look
    from dtctl.operations.checks.scene import scene_of
    from dtctl.operations.history.record import record_of
    from dtctl.operations.up.launch import make_plan
    from dtctl.operations.up.local import make_local
    from dtctl.render import checks, errors
    from dtctl.render.machine import checks as machine
    from dtctl.render.machine import document
    from dtctl.render.progress import UpProgress

    cluster = scope.cluster(cluster_file, with_ports_from(overrides, ports_from))
    hostname = scope.transport.hostname
    plan = make_plan(make_local(cluster) if local else cluster, hostname)
    if print_firewall is not None:
        from dtctl.operations.networking.rules import rules_of
        from dtctl.render import checks

        return checks.show_rules(rules_of(plan, print_firewall), print_firewall, output)
    allowed = may_start(cluster, overrides, local=local)
    scene = scene_of(plan, deep=deep, network_speed=network_speed, hostname=hostname, allowed_here=allowed)
    record = record_of(plan)
    with (
        scope.left("nothing was started; what was written to try is removed"),
        UpProgress(record.hosts, quiet=quiet or output == "json") as progress,
    ):
        checked = look(scene, record, scope.transport, progress)
    if output == "json":
        document.print_json("Check", machine.checked(checked))
    else:
        checks.show_checked(checked)
    errors.show_host_errors(checked.errors)
    if checked.failed:
        raise typer.Exit(ExitCode.PREFLIGHT)
    return exit_for(checked.errors, others=len(checked.errors) < len(checked.hosts))
