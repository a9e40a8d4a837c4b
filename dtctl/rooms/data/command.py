"""dtctl data"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import exit_for, report_errors
from dtctl.cli.late import console, document, errors, operations, render, rooms
from dtctl.cli.options import Exclude, OutputOption, Overrides, Quiet, Scope, check_action, on_cluster
from dtctl.cli.watching import require_sending, require_to_write
from dtctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.operations.run_record import RunRecord
    from dtctl.rooms.data.operation import DataSet

_ACTIONS = ("status", "push", "verify", "drop")
_OWN = {"push": ("--overwrite",), "drop": ("--yes",)}
"""Options that only apply to this action."""


@on_cluster
def data(
    scope: Scope,
    action: Annotated[
        str, typer.Argument(metavar="[status|push|verify|drop]", help="What to do; status if omitted.")
    ] = "status",
    exclude: Exclude = None,
    overrides: Overrides = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="With push: replace files that others have put there, and that differ.")
    ] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="With drop: do not ask for confirmation.")] = False,
    quiet: Quiet = False,
    output: OutputOption = "text",
) -> None:
    """Show, push, verify or drop the data set on the hosts."""
    check_action("data", action, _ACTIONS, _OWN, {"--overwrite": overwrite, "--yes": yes})
    shows = not quiet and output == "text"
    record, found = _found(scope, exclude, overrides, action, shows=shows)
    if action == "push":
        return _push(scope, record, found, overwrite=overwrite, shows=shows, output=output)
    if action == "drop":
        return _drop(scope, record, found, yes=yes, output=output)
    return _show(scope, record, found, verifies=action == "verify", shows=shows, output=output)


def _found(
    scope: Scope, exclude: list[str] | None, overrides: list[str] | None, action: str, *, shows: bool
) -> tuple[RunRecord, DataSet]:
    """The data set of a cluster file; its source is read only where needed."""
    from dtctl.plan import plan_roster

    cluster = scope.cluster(None, overrides)
    operations.engines.require_own_hosts(cluster, "data")
    source = rooms.data.operation.source_of(cluster)
    if action in ("push", "drop"):
        require_to_write(cluster, overrides)
    record = operations.run_record.record_of(plan_roster(cluster))
    hosts = operations.selection.select_hosts(record, [*record.hosts], exclude or [])
    if action == "push":
        require_sending(cluster, operations.sending.DATA)
    if action == "status" and not source.is_dir():
        errors.note(f"there is no {source} here: whether hosts have what it holds is unknown")
    reads = action == "push" or (action == "status" and source.is_dir())
    with rooms.data.screen.source_progress(source, quiet=not shows) as report:
        return record, rooms.data.operation.data_set(cluster, report, read=reads).only(*hosts)


def _push(scope: Scope, record: RunRecord, data_set: DataSet, *, overwrite: bool, shows: bool, output: str) -> None:
    assert data_set.bundle is not None
    render.plan.show_left_out(data_set.bundle, record.file)
    with (
        scope.on_interrupt("what has arrived stays on the hosts", "dtctl data push    sends the rest"),
        render.progress.UpProgress(data_set.hosts, quiet=not shows, rates=True) as progress,
    ):
        outcome = rooms.data.pushing.push_data(record, data_set, scope.transport, progress, overwrite=overwrite)
    if output == "json":
        places = rooms.data.document.data_pushed(outcome.results)
        fields = {**rooms.data.document.data_source(data_set), **document.not_pushed(data_set.bundle), "places": places}
        document.print_json("DataPush", {**fields, "errors": document.errors(outcome.errors)})
    else:
        rooms.data.screen.show_data_pushed(outcome.results)
        rooms.data.screen.show_data_source(data_set.bundle, data_set)
    report_errors(outcome.errors, others=outcome.results)


def _show(scope: Scope, record: RunRecord, data_set: DataSet, *, verifies: bool, shows: bool, output: str) -> None:
    if verifies:
        with render.progress.UpProgress(data_set.hosts, quiet=not shows, rates=True) as progress:
            outcome = rooms.data.operation.verify(record, data_set, scope.transport, progress)
    else:
        outcome = rooms.data.operation.status(record, data_set, scope.transport)
    states = [one for each in outcome.results.values() for one in each]
    if output == "json":
        fields = {
            **rooms.data.document.data_source(data_set),
            "places": rooms.data.document.data_states(outcome.results),
        }
        kind = "DataVerification" if verifies else "DataStatus"
        document.print_json(kind, {**fields, "errors": document.errors(outcome.errors)})
    elif states:
        rooms.data.screen.show_data_states(states)
        if verifies:
            rooms.data.screen.show_data_examples(states)
        for step in rooms.data.screen.next_steps(states):
            errors.note(step)
    errors.show_host_errors(outcome.errors)
    if verifies and any(state.right_files < state.held["files"] or state.state == "missing" for state in states):
        raise typer.Exit(ExitCode.RUN_FAILED)
    exit_for(outcome.errors, others=outcome.results)


def _drop(scope: Scope, record: RunRecord, data_set: DataSet, *, yes: bool, output: str) -> None:
    if not (yes or sys.stdin.isatty()):
        raise UsageError("drop removes files, so it asks first", hint="dtctl data drop --yes")
    if not yes:
        before = rooms.data.operation.status(record, data_set, scope.transport)
        errors.show_host_errors(before.errors)
        rooms.data.screen.show_data_states([one for each in before.results.values() for one in each])
        console.confirm("Remove what dtctl has put there?")
    with scope.on_interrupt("hosts that were already asked remove theirs", "dtctl data status    shows what is left"):
        outcome = rooms.data.operation.drop(record, data_set, scope.transport)
    if output == "json":
        fields = {
            "places": rooms.data.document.data_dropped(outcome.results),
            "errors": document.errors(outcome.errors),
        }
        document.print_json("DataDrop", fields)
    else:
        rooms.data.screen.show_data_dropped(outcome.results)
    report_errors(outcome.errors, others=outcome.results)
