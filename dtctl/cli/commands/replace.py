"""dtctl replace"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.consent import require_consent
from dtctl.cli.exits import exit_for
from dtctl.cli.options import OutputOption, Overrides, Quiet, Scope, on_cluster
from dtctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.operations.replace import Replacement

LOOK = "dtctl status    shows what is left"


@on_cluster
def replace(
    scope: Scope,
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host whose tasks are to move.")],
    new: Annotated[
        str | None,
        typer.Argument(metavar="[NEWHOST]", help="The host that takes them; the first of spares: if omitted."),
    ] = None,
    overrides: Overrides = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Move the tasks of a host to another one. Addresses change, so all tasks start again, from the checkpoints."""
    from dtctl.cli.starting import await_tasks, start
    from dtctl.operations.replace import check_same, plan_replacement
    from dtctl.operations.status import status
    from dtctl.operations.up.launch import prepare_launch
    from dtctl.operations.up.local import exposure
    from dtctl.render import errors, left_out, result
    from dtctl.render.machine import document, results

    cluster = scope.cluster(None, overrides, needs_files=True)
    exchange = plan_replacement(cluster, host, new)
    found = status(scope.record(), scope.transport)
    if not found.time:
        if found.errors:  # who did not answer may well know a run
            errors.show_host_errors(found.errors)
            exit_for(found.errors, others=found.without_run)
        raise UsageError(f"there is no run of {cluster.name} whose tasks could move", hint="dtctl up    starts one")
    check_same(cluster, found.record)
    absent = [name for name in (found.coordination.absent_hosts if found.coordination else ()) if name != host]
    require_consent(exchange.cluster, overrides, local=found.record.is_local)
    launch = prepare_launch(
        exchange.cluster,
        scope.transport.hostname,
        os.environ,
        local=found.record.is_local,
        replace=True,
        allow_missing=len(absent) or None,
    )
    launch = dataclasses.replace(launch, record=dataclasses.replace(launch.record, replaced={host: exchange.new}))
    left_out.show_left_out(launch.bundle, launch.plan.cluster.file)
    left_out.show_exposure(exposure(cluster))

    def agree(runs: Collection[str]) -> None:
        if not yes:
            _ask(exchange, runs)

    outcome = start(scope, launch, quiet=quiet, output=output, agree=agree)
    outcome = await_tasks(scope, launch, outcome, quiet=quiet or output == "json")
    if outcome.failed is not None:
        raise typer.Exit(ExitCode.RUN_FAILED)
    with scope.left(f"run {outcome.run} has started and continues", "dtctl status    shows it"):
        left_out.show_unremembered(outcome)
        if output == "json":
            return document.print_json("Replace", results.replace(exchange, outcome))
        result.show_started(outcome, launch.plan)
        result.show_replacement(exchange)
    return None


def _ask(exchange: Replacement, runs: Collection[str]) -> None:
    from dtctl.render.terminal import console

    if not sys.stdin.isatty():
        raise UsageError("replace stops the run, so it asks first", hint="dtctl replace HOST NEWHOST --yes")
    moved = ", ".join(map(str, exchange.tasks))
    what = f"stop {', '.join(runs)} and start again" if runs else "start again"
    console.confirm(f"Move {moved} from {exchange.old} to {exchange.new}: {what}?")
