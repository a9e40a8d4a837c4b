"""dtctl metrics"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.ending import report_errors
from dtctl.cli.late import document, errors, operations, rooms
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError, ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import RunStatus
    from dtctl.rooms.metrics.operation import Point, Series
    from dtctl.transport.seam import Transport

    Print = Callable[[Series, Point], None]

POINTS = 1000
_TABLE_POINTS = 100
_PLOT_POINTS = 400


@on_run
def metrics(
    scope: Scope,
    tags: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TAG]...", help="loss, or a pattern such as 'eval*'; all if none is named."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Print points as they come, until the run ends.")
    ] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw a curve for each tag.")] = False,
    log: Annotated[
        bool, typer.Option("--log", help="With --plot: a log scale also for values of less than three decades.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="All points as step,time,tag,run,value.")] = False,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="All points, each as a line of JSON.")] = False,
    points: Annotated[
        int | None, typer.Option("--points", metavar="N", min=1, max=2000, help="At most N of each tag, evenly spread.")
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Show the scalars that trainers write for TensorBoard: loss, accuracy, ..."""
    forms = [
        name
        for name, on in (("--csv", as_csv), ("--jsonl", jsonl), ("--plot", plot), ("-o json", output == "json"))
        if on
    ]
    if len(forms) > 1 or (follow and plot):
        several = forms if len(forms) > 1 else ["--follow", "--plot"]
        raise UsageError(f"{' and '.join(several)} exclude each other", hint="leave one of them out")
    if log and not plot:
        raise UsageError("--log is about curves", hint="add --plot")
    record = scope.placed()
    printer = _printer(as_csv=as_csv, jsonl=jsonl or output == "json")
    if follow:
        return _follow(scope, record, tags or [], points or (POINTS if forms else 1), printer, head=as_csv)
    usual = _PLOT_POINTS if plot else POINTS if forms else _TABLE_POINTS
    _show(scope, record, tags or [], points or usual, forms, printer, log=log)
    return None


def _show(
    scope: Scope, record: RunRecord, tags: list[str], points: int, forms: list[str], printer: Print, *, log: bool
) -> None:
    with operations.client.persistent.for_one_command(scope.transport) as kept:
        found = rooms.metrics.operation.read_metrics(record, kept, tags, points=points)
        if tags and found.run and not found.series:
            _refuse_tags(record, kept, tags)
        status = None if found.series or not found.run else _status(record, kept)
    if forms == ["-o json"]:
        document.print_json("Metrics", rooms.metrics.document.metrics(found, status))
    elif forms in (["--csv"], ["--jsonl"]):
        if forms == ["--csv"]:
            rooms.metrics.screen.put_csv_head()
        for one in found.series:
            for point in one.points:
                printer(one, point)
    elif found.series:
        rooms.metrics.screen.show_plots(found, log=log) if forms else rooms.metrics.screen.show_table(found)
    if not found.series and found.run and forms != ["-o json"]:
        rooms.metrics.screen.show_log_metrics(found, status, table_too=not forms)
    rooms.metrics.screen.show_rest(found)
    report_errors(found.errors, others=found.run)
    if not found.run:
        errors.note("  dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)


def _refuse_tags(record: RunRecord, transport: Transport, tags: list[str]) -> None:
    """Raises UsageError where there are others."""
    others = sorted({one.tag for one in rooms.metrics.operation.read_metrics(record, transport, [], points=1).series})
    if others:
        raise UsageError(f"no tag is {' or '.join(tags)}", hint=f"there are {', '.join(others[:20])}")


def _status(record: RunRecord, transport: Transport) -> RunStatus | None:
    try:
        return operations.status.status(record, transport)
    except DtctlError:
        return None  # the answers to the first request say why


def _printer(*, as_csv: bool, jsonl: bool) -> Print:
    if as_csv:
        return rooms.metrics.screen.put_csv
    if jsonl:
        return lambda series, point: document.print_json_line(rooms.metrics.document.line(series, point))
    return rooms.metrics.screen.say_point


def _follow(scope: Scope, record: RunRecord, tags: list[str], points: int, printer: Print, *, head: bool) -> None:
    if head:
        rooms.metrics.screen.put_csv_head()
    with scope.detached("dtctl metrics -f    follows them again"):
        for event in rooms.metrics.operation.follow_metrics(record, scope.transport, tags, points=points):
            if isinstance(event, operations.client.streams.Disconnected | operations.client.streams.Reconnected):
                errors.show_contact(event)
            elif event is not None:
                for point in event.points:
                    printer(event, point)
