"""dtctl status, top, wait, runs, compare, diagnose, dump: how a run is doing"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.completion import complete_runs
from dtctl.cli.ending import exit_for, exit_without_run, report_errors
from dtctl.cli.late import document, errors, operations, render, results
from dtctl.cli.options import OutputOption, Scope, Tasks, on_cluster, on_run, seconds
from dtctl.cli.watching import chosen, finish, watch
from dtctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import RunStatus


@on_run
def status(
    scope: Scope,
    output: OutputOption = "text",
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds until Ctrl-C.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show a line for each task, even if they do not fit on the terminal.")
    ] = False,
) -> None:
    """Show the state of the run, its problems, its tasks and its checkpoint."""
    record = scope.record()
    if watch and output == "text":
        with render.status.redrawn(every=every) as screen:
            while True:
                screen(operations.status.with_storage(operations.status.status(record, scope.transport)))
                time.sleep(2.0)
    with scope.dialling():
        found = operations.status.with_storage(operations.status.status(record, scope.transport))
    scope.memory.remember(found)
    _show(found, output, every=every)


def _show(found: RunStatus, output: OutputOption, *, every: bool) -> None:
    if not found.time:
        exit_without_run(found.errors, found.record, found.without_run)
    if output == "json":
        _print_json(found)
    else:
        render.status.show_status(found, every=every)
        render.result.show_away(found)
        if found.coordination is None and found.going_on_after_the_end:
            tasks = ", ".join(map(str, found.going_on_after_the_end))
            errors.note(f"still running: {tasks}", "dtctl stop    ends them")
    errors.show_host_errors(found.errors)
    render.result.show_without_run(found.record, found.without_run)
    exit_for(found.errors, others=True)


def _print_json(status: RunStatus) -> None:
    document.print_json("RunStatus", render.machine.status.run_status(status))


@on_cluster
def runs(
    scope: Scope,
    every: Annotated[
        bool, typer.Option("--all", help="Every cluster on these hosts, and live runs of other accounts there.")
    ] = False,
    output: OutputOption = "text",
) -> None:
    """List the cluster's runs that its hosts know, and who started them."""
    record = scope.record()
    with scope.dialling():
        known = operations.runs.known_runs(record, scope.transport, every_cluster=every)
    if output == "json":
        document.print_json("Runs", document.known_runs(known))
    elif known.runs or known.foreign:
        render.status.show_runs(known)
    elif not known.errors and not known.damaged:
        errors.note("no run yet", "dtctl up    starts one")
    for one in known.damaged:
        hint = "dtctl down    ends and removes what is left of the cluster's runs, this one too"
        errors.show_warning(f"{one['run']} on {one['host']} is damaged: {one['problem']}", hint=hint)
    report_errors(known.errors, others=known.runs)


@on_cluster
def compare(
    scope: Scope,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Their ids, as dtctl runs lists them.", autocompletion=complete_runs),
    ],
    output: OutputOption = "text",
) -> None:
    """Show runs side by side: their settings, outcome, speed and metrics."""
    if len(named := list(dict.fromkeys(runs))) < 2:
        raise UsageError("compare takes two runs or more", hint="dtctl runs    lists them")
    records = [dataclasses.replace(scope, run=run).record() for run in named]
    with scope.dialling():
        found = operations.compare.compare(records, scope.transport)
    if output == "json":
        document.print_json("Comparison", results.comparison(found))
    elif found.runs:
        render.status.show_comparison(found)
    report_errors(found.failed, others=found.runs)


@on_run
def diagnose(scope: Scope, output: OutputOption = "text") -> None:
    """Inspect every host; report what is wrong, why, and the next command."""
    record = scope.placed()
    with scope.dialling():
        found = operations.diagnosis.diagnose.diagnose(record, scope.transport)
    if not found.status.time:
        exit_without_run(found.errors, found.status.record, found.status.without_run)
    if output == "json":
        document.print_json("Diagnosis", render.machine.status.diagnosis(found))
    else:
        render.diagnosis.show_diagnosis(found)
    errors.show_host_errors(found.errors)
    render.result.show_without_run(found.status.record, found.status.without_run)
    exit_for(found.errors, others=True)


@on_run
def wait(
    scope: Scope,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="2h", help="Give up after this long (exit code 124).")
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Wait for the end of the run; its result is the exit code."""
    record = scope.record()
    status, reported = watch(
        scope, record, operations.logs.LogRequest(()), None, timeout_s=seconds(timeout) if timeout is not None else None
    )
    if output == "json":
        _print_json(status)
    finish(status, reported=reported)


LOG_LINES = 500


@on_run
def top(scope: Scope) -> None:
    """Watch the run, its tasks and their logs on a full screen (needs dtctl[top])."""
    record, transport = scope.record(), scope.transport
    render.top.need_screen()

    def open_log(known: RunRecord, task: TaskId) -> operations.client.streams.Feed:
        return operations.client.streams.Feed(
            lambda: operations.follow.follow_log(known, transport, task, LOG_LINES)
        ).start()

    run = operations.client.streams.Feed(lambda: operations.watch.watch_run(record, transport)).start()
    first = run.first()  # before the screen, because errors and questions need the terminal
    known = first.record if isinstance(first, operations.snapshot.RunStatus) else record
    loss = operations.client.streams.Feed(lambda: operations.metrics.follow_loss(known, transport))
    try:
        if isinstance(first, BaseException):
            raise first
        status, code = render.top.show(run, loss.start(), open_log)
    finally:
        run.close()
        loss.close()
    if status is not None:
        scope.memory.remember(status)
    if code is not None:
        raise typer.Exit(code)


@on_run
def dump(scope: Scope, tasks: Tasks = None, output: OutputOption = "text") -> None:
    """Show the Python stacks of live trainers without stopping them."""
    record = scope.placed()
    found = operations.dump.dump(record, scope.transport, chosen(record, tasks))
    if output == "json":
        document.print_json("Dump", results.dumps(found))
    else:
        render.dump.show_dumps(found)
    report_errors(found.errors, others=found.tasks)
    if not found.has_stacks:
        raise typer.Exit(ExitCode.RUN_FAILED)
