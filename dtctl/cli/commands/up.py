"""dtctl up"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.consent import require_consent
from dtctl.cli.interrupts import left
from dtctl.cli.options import (
    ClusterFile,
    Local,
    OutputOption,
    Overrides,
    PortsFrom,
    Quiet,
    Raw,
    Scope,
    on_cluster,
    with_ports_from,
)
from dtctl.cli.watching import follow_to_the_end
from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    from dtctl.operations.up.launch import Start
    from dtctl.operations.up.result import UpResult
    from dtctl.render.progress import UpProgress


@on_cluster
def up(
    scope: Scope,
    cluster_file: ClusterFile = None,
    overrides: Overrides = None,
    local: Local = False,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Follow the logs; end with the run's result.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Stop a live run that differs, then start.")] = False,
    ports_from: PortsFrom = None,
    adopt_output: Annotated[
        bool, typer.Option("--adopt-output", help="Continue in an output directory that another cluster has written.")
    ] = False,
    require_private: Annotated[
        bool, typer.Option("--require-private", help="Refuse if others than the hosts reach the ports of tasks.")
    ] = False,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Do not look at the network, versions, disks, memory and clocks.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Start though the check has found what will make tasks fail.")
    ] = False,
    allow_missing: Annotated[
        int, typer.Option("--allow-missing", metavar="N", min=0, help="Go on without at most N hosts of workers.")
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and start nothing.")] = False,
    quiet: Quiet = False,
    raw: Raw = False,
    output: OutputOption = "text",
) -> None:
    """Push the code and start every task."""
    overrides = with_ports_from(overrides, ports_from)
    if dry_run:
        from dtctl.cli.commands import plan

        return plan.show(scope, cluster_file, overrides, [], local=local, every=scope.verbose, output=output)
    from dtctl.cli.starting import await_tasks, start
    from dtctl.operations.checks.scene import scene_of
    from dtctl.operations.networking.private import require_private as refuse_exposed
    from dtctl.operations.up.launch import prepare_launch
    from dtctl.operations.up.local import exposure
    from dtctl.operations.up.review import review
    from dtctl.render import errors, left_out

    checked = scope.checked(cluster_file, overrides)
    cluster, reviewed = checked.cluster, review(checked, os.environ, local=local, force=force)
    errors.show_doubts(reviewed.doubts)
    require_consent(cluster, overrides, local=local, typed=local)
    launch = prepare_launch(
        cluster,
        scope.transport.hostname,
        os.environ,
        reviewed.bundle,
        local=local,
        replace=replace,
        adopt_output=adopt_output,
        check=not no_check,
        force=force,
        allow_missing=allow_missing,
    )
    left_out.show_left_out(launch.bundle, launch.plan.cluster.file)
    left_out.show_exposure(exposure(cluster))

    def first(bars: UpProgress) -> None:
        if require_private:
            refuse_exposed(
                scene_of(launch.plan, hostname=scope.transport.hostname), launch.record, scope.transport, bars
            )

    try:
        previous = scope.memory.newest_of(cluster.file)
        outcome = start(scope, launch, quiet=quiet, output=output, first=first, previous=previous, force=force)
    except DtctlError as error:
        _name_replaced_hosts(scope, launch, error)
        raise
    if follow and outcome.lead is not None:
        outcome.lead.close()
    if not follow:
        outcome = await_tasks(scope, launch, outcome, quiet=quiet or output == "json", raw=raw)
    _show(outcome, launch, output)
    if follow:
        return _follow(scope, launch, outcome, raw=raw)
    if outcome.failed is not None:
        raise typer.Exit(ExitCode.RUN_FAILED)
    if len(outcome.absent) > allow_missing:  # they were to join a run that goes on
        raise typer.Exit(ExitCode.PARTIAL)
    if output == "text" and not quiet:
        from dtctl.render.result import show_next_steps

        show_next_steps()
    return None


def _show(outcome: UpResult, launch: Start, output: str) -> None:
    from dtctl.render import left_out, result
    from dtctl.render.machine import checks, document

    with left(f"run {outcome.run} continues", "dtctl stop    ends it"):
        left_out.show_unremembered(outcome)
        if output == "json":
            told = {**document.started(launch.plan.cluster.name, outcome), **checks.in_passing(outcome)}
            document.print_json("Up", {**told, **document.not_pushed(launch.bundle)})
        elif outcome.failed is None:
            result.show_started(outcome, launch.plan)


def _follow(scope: Scope, launch: Start, outcome: UpResult, *, raw: bool) -> None:
    record = dataclasses.replace(launch.record, run=outcome.run)
    cluster, fresh = launch.plan.cluster, bool(outcome.started)
    follow_to_the_end(scope, record, lines=None, raw=raw, started=cluster, fresh=fresh, without=outcome.absent)


def _name_replaced_hosts(scope: Scope, launch: Start, error: DtctlError) -> None:
    from dtctl.operations.replace import taken_places
    from dtctl.render.errors import note

    for old, new in taken_places(error, launch.record, scope.transport).items():
        note(f"{new} has taken the place of {old} in the live run: write it into {launch.plan.cluster.file}")
