"""dtctl stop, down, gc"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import exit_for
from dtctl.cli.late import console, document, errors, operations, render, results
from dtctl.cli.options import Exclude, OutputOption, Scope, Tasks, on_cluster, on_run, seconds
from dtctl.cli.scope import Announced, facts
from dtctl.cli.watching import chosen
from dtctl.errors import DtctlError, ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.operations.down import DownResult
    from dtctl.operations.gc import GcResult
    from dtctl.operations.run_record import RunRecord


LOOK = "dtctl status    shows what is left"

Grace = Annotated[
    str | None,
    typer.Option("--grace", metavar="30s", help="Between SIGTERM and SIGKILL; as in the cluster file if omitted."),
]


@on_run
def stop(
    scope: Scope, tasks: Tasks = None, exclude: Exclude = None, grace: Grace = None, output: OutputOption = "text"
) -> None:
    """Stop tasks (all, if none is named), and check that no process is left."""
    record = scope.record()
    order, some = stop_order(grace), chosen(record, tasks, exclude)
    before = Announced(scope, record, "stopping", say=output == "text")
    with ending_tasks(scope, output, before) as progress:
        with progress:
            outcome = operations.stop.stop(record, scope.transport, some, order, progress, before)
        if not (tasks or exclude) and outcome.stopped and not (outcome.errors or outcome.survivors) and outcome.known:
            scope.memory.change(outcome.known, outcome="Stopped")
        if output == "json":
            document.print_json("Stop", document.stop(outcome))
            errors.show_host_errors(outcome.errors)
        else:
            render.result.show_stop(outcome)
            render.result.show_without_run(record, outcome.without_run)
    if code := render.result.stop_exit_code(outcome):
        raise typer.Exit(code)
    raise typer.Exit(ExitCode.OK)


def stop_order(grace: str | None, why: str = "stopped_by") -> operations.stop.StopOrder:
    return operations.stop.StopOrder(
        operations.client.controller_name(), seconds(grace) if grace is not None else None, why
    )


@contextmanager
def ending_tasks(
    scope: Scope, output: OutputOption, before: Announced, also_left: str = "", next_step: str = LOOK
) -> Iterator[render.progress.StopProgress]:
    """Shows how tasks end; an interrupt says what it leaves to the hosts."""
    progress = render.progress.StopProgress(
        quiet=output == "json", dialled=scope.transport.dialled, failed=scope.transport.failed
    )

    def left() -> str:
        if progress.acknowledged:
            return f"the hosts have been asked to end the tasks; that is still carried out there{also_left}"
        return f"requests that have reached the hosts are still carried out there{also_left}"

    with scope.on_interrupt(left, next_step, announced=before):
        yield progress


@on_run
def down(
    scope: Scope,
    grace: Grace = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    output: OutputOption = "text",
) -> None:
    """Stop the run and remove its logs and code; what the trainers wrote is kept."""
    record = scope.record()
    if not yes and not sys.stdin.isatty():
        raise UsageError("down removes the run's logs, so it asks first", hint="dtctl down --yes")
    order = stop_order(grace, "taken_down")

    def agreed(found: operations.stop.Ending) -> None:
        if not yes:
            stop = f"Stop {facts(found)}," if found.run and found.tasks else f"Clear away {record.cluster}"
            console.confirm(f"{stop} and remove its logs on {render.format.fold(record.hosts)}?")

    before = Announced(scope, record, "stopping", say=yes and output == "text", agreed=agreed)
    rest = "dtctl down    removes the rest"
    with ending_tasks(scope, output, before, "; files may be left", rest) as progress, progress:
        outcome = operations.down.down(record, scope.transport, order, progress, before)
    with scope.on_interrupt("the run has been taken down", "dtctl runs    shows what is left of it"):
        _report(scope, record, outcome, output)


def _report(scope: Scope, record: RunRecord, outcome: DownResult, output: OutputOption) -> None:
    """Shows what has become of it, and forgets what was removed."""
    if output == "json":
        document.print_json("Down", results.down(outcome))
        errors.show_host_errors(outcome.stop.errors)
    else:
        render.result.show_stop(outcome.stop)
        render.result.show_without_run(record, outcome.stop.without_run)
        runs = {run for removed in outcome.removed.values() for run in removed}
        for run in sorted(runs):
            hosts = [host for host, gone in outcome.removed.items() if run in gone]
            errors.note(f"removed {run} from {render.format.summarize_hosts(hosts)}")
        render.result.show_kept(outcome.kept)
        if outcome.stop.absent:
            errors.note(
                f"{render.format.fold(outcome.stop.absent)} was not part of the run, and was not queried",
                "dtctl gc    removes what earlier runs left there, once it answers",
            )
        render.result.show_awaited(outcome.awaited, outcome.stop.errors)
        if outcome.unasked:
            unasked = render.format.fold(outcome.unasked)
            errors.note(
                f"{unasked} has no task, and gave no answer: what earlier runs left there stays",
                "dtctl down    again removes it, once it answers",
            )
    if not outcome.stop.errors and not outcome.stop.survivors:
        scope.memory.forget_failure(record.file)
        ended = {run for removed in outcome.removed.values() for run in removed}
        operations.engines.forget(record, [*ended, *([record.run] if record.run else [])])
        try:
            scope.memory.forget_removed(record.cluster, outcome.removed)
        except DtctlError as error:
            errors.show_warning(f"{error.summary}: {error.detail}", "it was removed from the hosts")
    if code := render.result.stop_exit_code(outcome.stop):
        raise typer.Exit(ExitCode.PARTIAL if outcome.removed and code is not ExitCode.SURVIVORS else code)


@on_cluster
def gc(
    scope: Scope,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Include every cluster on these hosts.")] = False,
    written: Annotated[
        bool, typer.Option("--written", help="Remove what trainers wrote, too, of clusters without a run.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    output: OutputOption = "text",
) -> None:
    """Remove processes, old runs and unused code that finished runs have left."""
    record = scope.record()
    record = dataclasses.replace(record, hosts={**record.others, **record.hosts})  # also those without a task

    def look(*, dry_run: bool) -> GcResult:
        with scope.dialling():
            return operations.gc.collect(record, scope.transport, every_cluster=every, written=written, dry_run=dry_run)

    if dry_run or not yes:
        found = look(dry_run=True)
    if not (dry_run or yes):
        _ask(found)
    if not dry_run:
        with scope.on_interrupt(
            "hosts that were asked already still remove what is dead", "dtctl gc --dry-run    shows what is left"
        ):
            found = look(dry_run=False)
    if output == "json":
        document.print_json("Gc", document.gc(found, dry_run=dry_run))
    else:
        render.result.show_remains(found, dry_run=dry_run)
    errors.show_host_errors(found.errors)
    if any(one["survivors"] for one in found.remains.values()):
        raise typer.Exit(ExitCode.SURVIVORS)
    exit_for(found.errors, others=found.remains)


def _ask(result: GcResult) -> None:
    """Asks before removal. Without a terminal, files of dead runs need no consent; anything else raises UsageError."""
    if not result.anything:
        return
    if not sys.stdin.isatty():
        if not (result.processes or result.written):
            return
        does = "removes what trainers wrote" if result.written else "ends processes"
        raise UsageError(f"gc {does}, so it asks first", hint="dtctl gc --dry-run    or dtctl gc --yes")
    render.result.show_remains(result, dry_run=True)
    console.confirm("End these processes and remove the files?" if result.processes else "Remove these files?")
