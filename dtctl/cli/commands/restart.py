"""dtctl restart, scale, drain, undrain"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.commands.stop import LOOK, Grace, ending_tasks, stop_order
from dtctl.cli.completion import complete_tasks
from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, errors, operations, render, results
from dtctl.cli.options import Exclude, OutputOption, Scope, on_run
from dtctl.cli.scope import Announced
from dtctl.cli.watching import chosen
from dtctl.errors import UsageError

if TYPE_CHECKING:
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.stop import Ending

HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host of the run, as the cluster file names it.")]


@on_run
def restart(
    scope: Scope,
    tasks: Annotated[
        list[str], typer.Argument(metavar="TASK...", help="worker:1, worker, @HOST.", autocompletion=complete_tasks)
    ],
    exclude: Exclude = None,
    output: OutputOption = "text",
) -> None:
    """Stop tasks and start them again within their run, on the same addresses."""
    record = scope.record()
    some = chosen(record, tasks, exclude)

    def work(before: Announced) -> RestartResult:
        return operations.restart.restart(
            record, scope.transport, some, by=operations.client.controller_name(), before=before
        )

    _start_again(scope, record, "Restart", "restarting", work, output)


@on_run
def scale(
    scope: Scope,
    size: Annotated[
        str, typer.Argument(metavar="JOB=N", help="worker=4: as many tasks of the job run, the first ones.")
    ],
    grace: Grace = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would start, stop and restart, and change nothing.")
    ] = False,
    output: OutputOption = "text",
) -> None:
    """Let more or fewer tasks of a job run; those that train together with them restart from the checkpoint."""
    record, order = scope.record(), stop_order(grace)
    job, _, number = size.partition("=")
    if not (number.isascii() and number.isdecimal()) or len(number) > 5:
        raise UsageError(f"{size!r} is not JOB=N", hint="dtctl scale worker=4")
    scaling = operations.drain.plan_scaling(record, scope.transport, job, int(number))
    scaled = operations.drain.Scaled(scaling.before)
    before = Announced(scope, record, f"scaling {size}, which stops or restarts", say=output == "text" and not dry_run)
    before(operations.stop.ending(scaling.record, scaling.ends))
    with ending_tasks(scope, output, before) as progress:
        if not dry_run:
            with progress:
                scaled = operations.drain.scale(scaling, scope.transport, order, progress)
    if output == "json":
        document.print_json("Scale", results.scale(scaling, scaled, dry_run=dry_run))
    else:
        render.result.show_scaled(scaling, scaled, dry_run=dry_run)
    if scaled.stopped and (code := render.result.stop_exit_code(scaled.stopped)):
        errors.show_host_errors(scaled.errors)
        raise typer.Exit(code)
    report_errors(scaled.errors, others=[*scaling.starts, *scaling.stops])


@on_run
def drain(scope: Scope, host: HostName, grace: Grace = None, output: OutputOption = "text") -> None:
    """End the tasks of a host, and keep them away from it until `undrain`; the run pauses if it needs them."""
    record, order = scope.record(), stop_order(grace)
    about = operations.stop.Ending(None)

    def announce(found: operations.stop.Ending) -> None:
        nonlocal about
        about = found
        if output == "text":
            render.result.show_draining(host, found)

    before = Announced(scope, record, f"draining {host}, which ends", say=output == "text", agreed=announce)
    with ending_tasks(scope, output, before) as progress:
        with progress:
            outcome = operations.drain.drain(record, scope.transport, host, order, progress, before)
        if output == "json":
            document.print_json("Drain", results.drain(host, outcome, about))
            errors.show_host_errors(outcome.errors)
        else:
            render.result.show_drained(host, outcome)
    if code := render.result.stop_exit_code(outcome):
        raise typer.Exit(code)


@on_run
def undrain(scope: Scope, host: HostName, output: OutputOption = "text") -> None:
    """Let the tasks run again that `drain` holds; those that need each other start together."""
    record = scope.record()
    about = operations.stop.Ending(None)

    def work(before: Announced) -> RestartResult:
        return operations.drain.undrain(
            record, scope.transport, host, by=operations.client.controller_name(), before=before
        )

    def announce(found: operations.stop.Ending) -> None:
        nonlocal about
        about = found
        if output == "text":
            render.result.show_undraining(host, found)

    outcome = _start_again(scope, record, "Undrain", f"undraining {host}, which starts", work, output, announce)
    scope.memory.change(record, bad=tuple(bad for bad in record.bad if bad != host))
    if output == "text" and outcome.excused:
        errors.note(f"{host} takes part in the next run again")
    elif output == "text" and not outcome.tasks and not about.is_idle:
        errors.note(f"{host} is not drained")


def _start_again(
    scope: Scope,
    record: RunRecord,
    kind: str,
    doing: str,
    work: Callable[[Announced], RestartResult],
    output: OutputOption,
    announce: Callable[[Ending], None] = lambda found: None,
) -> RestartResult:
    before = Announced(scope, record, doing, say=output == "text", agreed=announce)
    with scope.on_interrupt("the hosts start what they were asked to", LOOK, announced=before):
        outcome = work(before)
        if output == "json":
            document.print_json(kind, results.restart(outcome))
        else:
            render.result.show_restarted(outcome)
            render.result.show_away(outcome)
        report_errors(outcome.errors, others=outcome.tasks)
    return outcome
