"""dtctl check"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from dtctl.cli.ending import exit_for
from dtctl.cli.late import console, document, errors, operations, render, rooms
from dtctl.cli.options import (
    ClusterFile,
    Exclude,
    Local,
    OutputOption,
    Overrides,
    PortsFrom,
    Quiet,
    Scope,
    on_cluster,
    with_ports_from,
)
from dtctl.cli.watching import unallowed
from dtctl.errors import ExitCode

FirewallKind = Literal["nftables", "iptables", "ufw"]


@on_cluster
def check(
    scope: Scope,
    cluster_file: ClusterFile = None,
    exclude: Exclude = None,
    overrides: Overrides = None,
    local: Local = False,
    ports_from: PortsFrom = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also run slow checks that load the hosts: imports, multiplications.")
    ] = False,
    print_firewall: Annotated[
        FirewallKind | None,
        typer.Option("--print-firewall", help="Only print firewall rules that admit the cluster's hosts alone."),
    ] = None,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Check every host before a start: network, storage, software and machine."""
    cluster = scope.cluster(cluster_file, with_ports_from(overrides, ports_from))
    if not local:
        operations.engines.require_own_hosts(cluster, "check")
    if print_firewall is not None:
        rules = rooms.check.network.firewall.rules_of(
            operations.up.launch.make_plan(cluster, scope.transport.hostname, local=local), print_firewall
        )
        return rooms.check.screen.show_rules(rules, print_firewall, output)
    context, record = rooms.check.checking.prepare_check(
        cluster, scope.transport.hostname, overrides, local=local, deep=deep, exclude=exclude or []
    )
    with (
        scope.on_interrupt("nothing was started; what was written to try is removed"),
        render.progress.UpProgress(context.hosts, quiet=quiet or output == "json") as progress,
    ):
        checked = rooms.check.checking.check(context, record, scope.transport, progress)
    if cluster.trainer.secrets and not record.is_local and unallowed(cluster, operations.sending.VALUES, local=local):
        allows = operations.consent.allow_command(cluster.file)
        errors.note(f"checked without the values of secrets, as you have not allowed it to send them: {allows}")
    if output == "json":
        document.print_json("Check", render.machine.status.checked(checked))
    else:
        rooms.check.screen.show_checked(checked)
        for line in render.plan.survival_lines(context.plan) if len(checked.errors) < len(checked.hosts) else ():
            console.err().prose(line)
    errors.show_host_errors(checked.errors)
    if checked.failed:
        raise typer.Exit(ExitCode.PREFLIGHT)
    return exit_for(checked.errors, others=len(checked.errors) < len(checked.hosts))
