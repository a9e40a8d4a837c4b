"""dtctl down"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.announcing import Announced, facts
from dtctl.cli.commands.stop import Grace, still_stopping
from dtctl.cli.durations import seconds
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError, UsageError

if TYPE_CHECKING:
    from dtctl.operations.down import DownResult
    from dtctl.operations.history.record import RunRecord


@on_run
def down(
    scope: Scope,
    grace: Grace = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")] = False,
    output: OutputOption = "text",
) -> None:
    """Stop the run and remove its files: logs, states and code. What the trainers wrote is kept."""
    import sys

    from dtctl.operations.client.ending import Ending
    from dtctl.operations.down import down as take_down
    from dtctl.operations.stop import StopOrder
    from dtctl.operations.up.launch import controller_name
    from dtctl.render.stopping import StopProgress
    from dtctl.render.terminal import console
    from dtctl.render.words import fold

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
        scope.left(
            lambda: f"{still_stopping(progress)}; files may be left",
            "dtctl down    removes the rest",
            announced=before,
        ),
        progress,
    ):
        outcome = take_down(record, scope.transport, order, progress, before)
    with scope.left("the run has been taken down", "dtctl runs    shows what is left of it"):
        _tell(scope, record, outcome, output)


def _tell(scope: Scope, record: RunRecord, outcome: DownResult, output: OutputOption) -> None:
    """Shows what has become of it, and forgets what was removed."""
    from dtctl.render import errors, result
    from dtctl.render.machine import document, results
    from dtctl.render.words import fold, summarize_hosts

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
            errors.show_warning(f"{error.summary}: {error.detail}", "it is gone from the hosts all the same")
    if code := result.stop_exit_code(outcome.stop):
        raise typer.Exit(code)
