"""dtctl dashboard, report, compare: runs on pages"""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtctl.cli.completion import complete_runs
from dtctl.cli.ending import exit_for, exit_without_run, report_errors
from dtctl.cli.late import console, document, errors, operations, render, rooms
from dtctl.cli.options import OutputOption, Scope, on_cluster, on_run
from dtctl.errors import DtctlError, UsageError

if TYPE_CHECKING:
    import socket

    from dtctl.model import TaskId
    from dtctl.operations.run_record import RunRecord
    from dtctl.rooms.pages.comparing import Comparison
    from dtctl.rooms.pages.report import Report
    from dtctl.transport.seam import Transport


Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of this machine; a free one if 0.")
]
OpenIt = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def listener(port: int, *, apart: bool = False) -> socket.socket:
    """Listens on loopback only; port 0 takes a free one. `apart`: see `webserver.listen`."""
    try:
        return rooms.pages.webserver.listen(port, apart=apart)
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot listen on 127.0.0.1:{port}: {why}", hint="--port 0 takes a free one") from error


@on_run
def dashboard(
    scope: Scope,
    port: Port = 0,
    open_it: OpenIt = False,
    output: OutputOption = "text",
) -> None:
    """Show the run live in a browser, until Ctrl-C."""
    with ExitStack() as stack:
        here = stack.enter_context(listener(port))
        following = stack.enter_context(rooms.pages.report.Following(scope.record(), scope.transport, os.environ))
        report = following.report()
        if not report.status.time:
            exit_without_run(report.errors, report.status.record, report.status.without_run)
        run, board, door = report.status.record.run, rooms.pages.dashboard.Board(), rooms.pages.webserver.Door()
        drawing = rooms.pages.dashboard_page.Drawing()
        board.put({**drawing.parts(report), **rooms.pages.dashboard_page.unknown(None)})
        scope.memory.remember(report.status)
        continues = "" if report.status.verdict.outcome.decided else ", and the run continues"
        stack.enter_context(scope.on_interrupt(f"the dashboard has ended{continues}"))
        logs = rooms.pages.log_page.LogTails(
            lambda: following.record.roster, lambda task: _followed(following.record, scope.transport, task)
        )
        answer = rooms.pages.dashboard.answering(
            board, rooms.pages.dashboard_page.whole, rooms.pages.dashboard_page.headers(), logs.follow
        )
        server = stack.enter_context(
            rooms.pages.webserver.Server(here, door, rooms.pages.dashboard_page.entrance("dtctl dashboard"), answer)
        )
        stack.callback(board.close)
        document = {"kind": "Dashboard", "run": run}
        once = f"it works once, in one browser; Ctrl-C ends the dashboard{continues}"
        door.on_entry = lambda: rooms.pages.dashboard_page.show_next_url(
            server.address, document, json=output == "json"
        )
        rooms.pages.dashboard_page.show_url(server.address, document, once, json=output == "json")
        if open_it:
            stack.enter_context(rooms.pages.webserver.opened(rooms.pages.dashboard_page.entered(server.address)))
        for event in rooms.pages.dashboard.looks(following, report, board, lambda: server.alive):
            if isinstance(event, DtctlError):
                board.put(rooms.pages.dashboard_page.unknown(event))
                continue
            board.put({**drawing.parts(event), **rooms.pages.dashboard_page.unknown(None)})
            scope.memory.remember(event.status)
        raise DtctlError("the dashboard's server has stopped unexpectedly")


def _followed(record: RunRecord, transport: Transport, task: TaskId) -> operations.client.streams.Feed:
    """The log of a task as it grows, over a connection of its own."""
    lines = rooms.pages.log_page.LINES
    return operations.client.streams.Feed(lambda: operations.follow.follow_log(record, transport, task, lines)).start()


Format = Literal["html", "md"]


@on_run
def report(
    scope: Scope,
    file: Annotated[
        str | None,
        typer.Option("-O", "--out", metavar="FILE", help="Where to write it; - is stdout. RUN.html if omitted."),
    ] = None,
    format: Annotated[  # noqa: A002 (the option's own name)
        Format | None, typer.Option("--format", metavar="html|md", help="A page, or Markdown; as FILE ends, else html.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is not a report.")] = False,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            "--compare",
            metavar="RUN",
            help="Side by side with another run, in a table and in the curves; again for more.",
            autocompletion=complete_runs,
        ),
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Write a page about the run: result, timeline, curves, checkpoints, goodput."""
    form = format or ("md" if file and file.endswith((".md", ".markdown")) else "html")
    if file not in (None, "-"):
        rooms.pages.report.check_place(Path(str(file)), force=force)
    record = scope.record()
    with scope.dialling():
        found = rooms.pages.report.gather(record, scope.transport, os.environ)
    if not found.status.time:
        exit_without_run(found.errors, found.status.record, found.status.without_run)
    compared = _compared(scope, found, compare) if compare else None
    text = (
        rooms.pages.report_page.page(found, compared)
        if form == "html"
        else rooms.pages.report_page.markdown(found, compared)
    )
    if file == "-":
        rooms.pages.report_page.put(text)
    else:
        path = Path(file or f"{found.status.record.run}.{form}")
        written = rooms.pages.report.write_report(path, text, found.status.record.project, force=force)
        if output == "json":
            run, where = found.status.record.run, str(path.absolute())
            document.print_json("Report", {"run": run, "file": where, "format": form, "sizeBytes": written})
        else:
            console.say(f"{path} ({render.format.size(written)})")
    failed = {**(compared.failed if compared is not None else {}), **found.errors}
    errors.show_host_errors(failed)
    rooms.pages.report_page.show_unasked(found.unasked)
    exit_for(failed, others=found.status.time)


def _compared(scope: Scope, found: Report, named: list[str]) -> Comparison:
    others = [run for run in dict.fromkeys(named) if run != found.status.record.run]
    records = [dataclasses.replace(scope, run=run).record() for run in others]
    with scope.dialling():
        return rooms.pages.comparing.beside(found, records, scope.transport)


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
        found = rooms.pages.comparing.compare(records, scope.transport)
    code = rooms.pages.comparing.between(found.runs, scope.memory.code_of)
    if output == "json":
        document.print_json("Comparison", rooms.pages.comparing_document.comparison(found, code))
    elif found.runs:
        rooms.pages.comparing_screen.show_comparison(found)
        rooms.pages.comparing_screen.show_code(code)
    report_errors(found.failed, others=found.runs)
