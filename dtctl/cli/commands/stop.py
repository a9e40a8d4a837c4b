"""dtctl stop, down, restart, gc"""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.completion import complete_tasks
from dtctl.cli.ending import exit_for
from dtctl.cli.options import OutputOption, Scope, Tasks, on_cluster, on_run, seconds
from dtctl.cli.scope import Announced, facts
from dtctl.cli.watching import chosen
from dtctl.errors import DtctlError, ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.operations.down import DownResult
    from dtctl.operations.gc import GcResult
    from dtctl.operations.run_record import RunRecord
    from dtctl.render.progress import StopProgress


LOOK = "dtctl status    shows what is left"

Grace = Annotated[
    str | None,
    typer.Option("--grace", metavar="30s", help="Between SIGTERM and SIGKILL; as in the cluster file if omitted."),
]


@on_run
def stop(scope: Scope, tasks: Tasks = None, grace: Grace = None, output: OutputOption = "text") -> None:
    """Stop tasks (all, if none is named), and check that no process is left."""
    from dtctl.operations.client.conversation import controller_name
    from dtctl.operations.stop import StopOrder
    from dtctl.operations.stop import stop as end
    from dtctl.render import errors, result
    from dtctl.render.machine import document
    from dtctl.render.progress import StopProgress

    record = scope.record()
    order = StopOrder(controller_name(), seconds(grace) if grace is not None else None)
    some = chosen(record, tasks)
    before = Announced(scope, record, "stopping", say=output == "text")
    progress = StopProgress(quiet=output == "json", dialled=scope.transport.dialled, failed=scope.transport.failed)
    with scope.on_interrupt(lambda: still_stopping(progress), LOOK, announced=before):
        with progress:
            outcome = end(record, scope.transport, some, order, progress, before)
        if not tasks and outcome.stopped and not (outcome.errors or outcome.survivors) and outcome.known:
            scope.memory.change(outcome.known, outcome="Stopped")
        if output == "json":
            document.print_json("Stop", document.stop(outcome))
            errors.show_host_errors(outcome.errors)
        else:
            result.show_stop(outcome)
            result.show_without_run(record, outcome.without_run)
    if code := result.stop_exit_code(outcome):
        raise typer.Exit(code)
    raise typer.Exit(ExitCode.OK)


def still_stopping(progress: StopProgress) -> str:
    """What an interrupt leaves to the hosts."""
    if progress.heard:
        return "the hosts have been asked to end the tasks; that is still carried out there"
    return "requests that have reached the hosts are still carried out there"


@on_run
def down(
    scope: Scope,
    grace: Grace = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    output: OutputOption = "text",
) -> None:
    """Stop the run and remove its logs and code; what the trainers wrote is kept."""
    import sys

    from dtctl.operations.client.conversation import controller_name
    from dtctl.operations.down import down as take_down
    from dtctl.operations.stop import Ending, StopOrder
    from dtctl.render.format import fold
    from dtctl.render.progress import StopProgress
    from dtctl.render.terminal import console

    record = scope.record()
    if not yes and not sys.stdin.isatty():
        raise UsageError("down removes the run's logs, so it asks first", hint="dtctl down --yes")
    order = StopOrder(controller_name(), seconds(grace) if grace is not None else None, "taken_down")

    def agreed(found: Ending) -> None:
        if not yes:
            stop = f"Stop {facts(found)}," if found.run and found.tasks else f"Clear away {record.cluster}"
            console.confirm(f"{stop} and remove its logs on {fold(record.hosts)}?")

    before = Announced(scope, record, "stopping", say=yes and output == "text", agreed=agreed)
    progress = StopProgress(quiet=output == "json", dialled=scope.transport.dialled, failed=scope.transport.failed)
    with (
        scope.on_interrupt(
            lambda: f"{still_stopping(progress)}; files may be left",
            "dtctl down    removes the rest",
            announced=before,
        ),
        progress,
    ):
        outcome = take_down(record, scope.transport, order, progress, before)
    with scope.on_interrupt("the run has been taken down", "dtctl runs    shows what is left of it"):
        _report(scope, record, outcome, output)


def _report(scope: Scope, record: RunRecord, outcome: DownResult, output: OutputOption) -> None:
    """Shows what has become of it, and forgets what was removed."""
    from dtctl.render import errors, result
    from dtctl.render.format import fold, summarize_hosts
    from dtctl.render.machine import document, results

    if output == "json":
        document.print_json("Down", results.down(outcome))
        errors.show_host_errors(outcome.stop.errors)
    else:
        result.show_stop(outcome.stop)
        result.show_without_run(record, outcome.stop.without_run)
        runs = {run for removed in outcome.removed.values() for run in removed}
        for run in sorted(runs):
            errors.note(
                f"removed {run} from {summarize_hosts(host for host, gone in outcome.removed.items() if run in gone)}"
            )
        result.show_kept(outcome.kept)
        if outcome.stop.absent:
            errors.note(
                f"{fold(outcome.stop.absent)} had no part in the run, and was not asked",
                "dtctl gc    removes what earlier runs left there, once it answers",
            )
        if outcome.unasked:
            errors.note(
                f"{fold(outcome.unasked)} has no task, and gave no answer: what earlier runs left there stays",
                "dtctl down    again removes it, once it answers",
            )
    if not outcome.stop.errors and not outcome.stop.survivors:
        try:
            scope.memory.forget_removed(record.cluster, outcome.removed)
        except DtctlError as error:
            errors.show_warning(f"{error.summary}: {error.detail}", "it was removed from the hosts")
    if code := result.stop_exit_code(outcome.stop):
        raise typer.Exit(code)


@on_run
def restart(
    scope: Scope,
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK...", help="worker:1, worker, @HOST.", autocompletion=complete_tasks)
    ],
    output: OutputOption = "text",
) -> None:
    """Stop tasks and start them again within their run, on the same addresses."""
    from dtctl.operations.client.conversation import controller_name
    from dtctl.operations.restart import restart as start_again
    from dtctl.render import errors
    from dtctl.render.machine import document, results
    from dtctl.render.result import show_away, show_restarted

    record = scope.record()
    some, before = chosen(record, tasks), Announced(scope, record, "restarting", say=output == "text")
    again = "the hosts start again what they were asked to"
    with scope.on_interrupt(again, "dtctl status    shows how far it is", announced=before):
        outcome = start_again(record, scope.transport, some, by=controller_name(), before=before)
        if output == "json":
            document.print_json("Restart", results.restart(outcome))
        else:
            show_restarted(outcome)
            show_away(outcome)
        errors.show_host_errors(outcome.errors)
    exit_for(outcome.errors, others=outcome.tasks)


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
    from dtctl.operations.gc import collect
    from dtctl.render import errors
    from dtctl.render.machine import document
    from dtctl.render.result import show_remains

    record = scope.record()
    record = dataclasses.replace(record, hosts={**record.others, **record.hosts})  # those without a task, too

    def look(*, dry_run: bool) -> GcResult:
        with scope.dialling():
            return collect(record, scope.transport, every_cluster=every, written=written, dry_run=dry_run)

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
        show_remains(found, dry_run=dry_run)
    errors.show_host_errors(found.errors)
    if any(one["survivors"] for one in found.remains.values()):
        raise typer.Exit(ExitCode.SURVIVORS)
    exit_for(found.errors, others=found.remains)


def _ask(found: GcResult) -> None:
    """Without a terminal, files of dead runs are removed without a question; processes and trainers' files stay."""
    from dtctl.render.result import show_remains
    from dtctl.render.terminal import console

    if not found.anything:
        return
    if not sys.stdin.isatty():
        if not (found.processes or found.written):
            return
        does = "removes what trainers wrote" if found.written else "ends processes"
        raise UsageError(f"gc {does}, so it asks first", hint="dtctl gc --dry-run    or dtctl gc --yes")
    show_remains(found, dry_run=True)
    console.confirm("End these processes and remove the files?" if found.processes else "Remove these files?")
