"""dtctl up"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.announcing import Announced
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
from dtctl.errors import DtctlError, ExitCode, PreflightError

if TYPE_CHECKING:
    from dtctl.operations.checks.checking import Checked
    from dtctl.operations.starting.earlier import Unseen


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
        from dtctl.cli.commands.file import plan

        return plan.show(scope, cluster_file, overrides, [], local=local, every=scope.verbose, output=output)
    from dtctl.operations.checks.scene import scene_of
    from dtctl.operations.networking.private import require_private as refuse_exposed
    from dtctl.operations.starting.interrupts import Interrupted
    from dtctl.operations.starting.prepare import prepare_launch
    from dtctl.operations.starting.review import review
    from dtctl.operations.starting.secrets import exposure
    from dtctl.operations.up import up as start
    from dtctl.render import errors, left_out
    from dtctl.render.interrupted import show_interrupted
    from dtctl.render.machine import checks as machine
    from dtctl.render.machine import document
    from dtctl.render.progress import UpProgress

    checked = scope.checked(cluster_file, overrides)
    cluster, reviewed = checked.cluster, review(checked, os.environ, local=local)
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
        allow_missing=allow_missing,
    )
    left_out.show_left_out(launch.bundle)
    left_out.show_exposure(exposure(cluster))
    try:
        with UpProgress(launch.record.hosts, quiet=quiet or output == "json") as progress:
            if require_private:
                scene = scene_of(launch.plan, hostname=scope.transport.hostname)
                refuse_exposed(scene, launch.record, scope.transport, progress)

            def consent(runs: Collection[str]) -> None:
                for run in runs:
                    scope.refuse_others(launch.record, run)

            outcome = start(
                launch,
                scope.transport,
                progress,
                scope.memory,
                consent,
                previous=scope.memory.newest_of(cluster.file),
                at_zero=_show_unseen,
                before=Announced(scope, launch.record, "stopping", say=output == "text"),
                stopping=progress.ending,
                checked=lambda found: _refuse_certain_failures(found, force=force),
            )
    except DtctlError as error:
        from dtctl.operations.replace import taken_places

        for old, new in taken_places(error, launch.record, scope.transport).items():
            errors.note(f"{new} has taken the place of {old} in the live run: write it into {cluster.file}")
        raise
    except Interrupted as interrupted:
        show_interrupted(interrupted.left, cluster.file, brought=scope.transport.reached)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    from dtctl.render import result  # while the trainers begin

    with left(f"run {outcome.run} continues", "dtctl stop    ends it"):
        left_out.show_unremembered(outcome)
        if output == "json":
            told = {**document.started(cluster.name, outcome), **machine.in_passing(outcome)}
            document.print_json("Up", {**told, **document.not_pushed(launch.bundle)})
        else:
            result.show_started(outcome, launch.plan)
    if follow:
        import dataclasses

        record = dataclasses.replace(launch.record, run=outcome.run)
        fresh, absent = bool(outcome.started), outcome.absent
        return follow_to_the_end(scope, record, lines=None, raw=raw, started=cluster, fresh=fresh, without=absent)
    if len(outcome.absent) > allow_missing:  # they were to join a run that goes on
        raise typer.Exit(ExitCode.PARTIAL)
    if outcome.broken:
        raise typer.Exit(ExitCode.RUN_FAILED)
    if output == "text" and not quiet:
        result.show_next_steps()
    return None


def _refuse_certain_failures(checked: Checked, *, force: bool) -> None:
    from dtctl.operations.checks.of_software import STOPPING
    from dtctl.render.checks import page

    page.show_brief(checked)
    certain = [one for one in checked.found if one.signature in STOPPING]
    if certain and not force:
        raise PreflightError(
            "tasks would fail as soon as they start, so nothing was started",
            detail="\n".join(page.worded(one)[0] for one in certain),
            hint="dtctl up --force    starts them all the same",
        )


def _show_unseen(unseen: Unseen) -> None:
    from dtctl.render.result import show_unseen

    show_unseen(unseen)
