"""dtctl status, top, wait, runs, compare, diagnose, dump: how a run is doing"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import exit_for, exit_without_run, report_errors
from dtctl.cli.late import document, errors, operations, render
from dtctl.cli.options import OutputOption, Scope, on_cluster, on_run, seconds
from dtctl.cli.watching import finish, watch

if TYPE_CHECKING:
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
    _show(scope.or_not_started(found), output, every=every)


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
    failed = scope.memory.failed_start(record)
    if failed is not None:
        known = operations.runs.with_run(known, failed.known_run(operations.client.controller_name()))
    if output == "json":
        document.print_json("Runs", document.known_runs(known))
    elif known.runs or known.foreign:
        render.status.show_runs(known)
    elif not known.errors and not known.damaged:
        errors.note("no run yet", "dtctl up    starts one")
    if known.foreign_hidden and output == "text":
        hosts = render.format.summarize_hosts(known.foreign_hidden)
        errors.note(f"{hosts}: runs of other accounts are unknown, as /proc hides their processes (hidepid)")
    for one in known.damaged:
        hint = "dtctl down    ends and removes what is left of the cluster's runs, this one too"
        errors.show_warning(f"{one['run']} on {one['host']} is damaged: {one['problem']}", hint=hint)
    report_errors(known.errors, others=known.runs)


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
    _end_if_not_started(scope, record, output)
    status, reported = watch(
        scope, record, operations.logs.LogRequest(()), None, timeout_s=seconds(timeout) if timeout is not None else None
    )
    if output == "json":
        _print_json(status)
    finish(status, reported=reported)


def _end_if_not_started(scope: Scope, record: RunRecord, output: OutputOption) -> None:
    """Ends the command with the failure of the last start, if no run was live since."""
    if scope.memory.failed_start(record, scope.run) is None:
        return
    with scope.dialling():
        found = scope.or_not_started(operations.status.status(record, scope.transport))
    if found.not_started is not None:
        if output == "json":
            _print_json(found)
        finish(found)
