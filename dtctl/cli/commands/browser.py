"""dtctl dashboard, report, tensorboard: a run in a browser"""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dtctl.cli.completion import complete_runs
from dtctl.cli.ending import exit_for, exit_without_run
from dtctl.cli.late import console, document, errors, operations, render
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError, ExitCode, UsageError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from dtctl.operations.compare import Comparison
    from dtctl.operations.report import Report
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.tensorboard import EventFileSources, Location
    from dtctl.operations.tensorboard.tunnel import Upstream

    Begin = Callable[[Callable[[], Upstream], list[str]], None]
    "Starts to admit browsers, once connections for them exist; with the directories that are shown."


Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of this machine; a free one if 0.")
]
OpenIt = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]


def listener(port: int, *, apart: bool = False) -> socket.socket:
    """Listens on loopback only; port 0 takes a free one. `apart`: see `webserver.listen`."""
    try:
        return operations.webserver.listen(port, apart=apart)
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
        following = stack.enter_context(operations.report.Following(scope.record(), scope.transport, os.environ))
        report = following.report()
        if not report.status.time:
            exit_without_run(report.errors, report.status.record, report.status.without_run)
        run, board, door = report.status.record.run, operations.dashboard.Board(), operations.webserver.Door()
        board.put({**render.dashboard.parts(report), **render.dashboard.unknown(None)})
        scope.memory.remember(report.status)
        continues = "" if report.status.verdict.outcome.decided else ", and the run continues"
        stack.enter_context(scope.on_interrupt(f"the dashboard has ended{continues}"))
        answer = operations.dashboard.answering(board, render.dashboard.whole, render.dashboard.headers())
        server = stack.enter_context(
            operations.webserver.Server(here, door, render.dashboard.entrance("dtctl dashboard"), answer)
        )
        stack.callback(board.close)
        document = {"kind": "Dashboard", "run": run}
        once = f"it works once, in one browser; Ctrl-C ends the dashboard{continues}"
        door.on_entry = lambda: render.dashboard.show_next_url(server.address, document, json=output == "json")
        render.dashboard.show_url(server.address, document, once, json=output == "json")
        if open_it:
            stack.enter_context(operations.webserver.opened(render.dashboard.entered(server.address)))
        for event in operations.dashboard.looks(following, report, board, lambda: server.alive):
            if isinstance(event, DtctlError):
                board.put(render.dashboard.unknown(event))
                continue
            board.put({**render.dashboard.parts(event), **render.dashboard.unknown(None)})
            scope.memory.remember(event.status)
        raise DtctlError("the dashboard's server has stopped unexpectedly")


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
        operations.report.check_place(Path(str(file)), force=force)
    record = scope.record()
    with scope.dialling():
        found = operations.report.gather(record, scope.transport, os.environ)
    if not found.status.time:
        exit_without_run(found.errors, found.status.record, found.status.without_run)
    compared = _compared(scope, found, compare) if compare else None
    text = render.report.page(found, compared) if form == "html" else render.report.markdown(found, compared)
    if file == "-":
        render.report.put(text)
    else:
        path = Path(file or f"{found.status.record.run}.{form}")
        written = operations.report.write_report(path, text, found.status.record.project, force=force)
        if output == "json":
            run, where = found.status.record.run, str(path.absolute())
            document.print_json("Report", {"run": run, "file": where, "format": form, "sizeBytes": written})
        else:
            console.say(f"{path} ({render.format.size(written)})")
    failed = {**(compared.failed if compared is not None else {}), **found.errors}
    errors.show_host_errors(failed)
    render.report.show_unasked(found.unasked)
    exit_for(failed, others=found.status.time)


def _compared(scope: Scope, found: Report, named: list[str]) -> Comparison:
    others = [run for run in dict.fromkeys(named) if run != found.status.record.run]
    records = [dataclasses.replace(scope, run=run).record() for run in others]
    with scope.dialling():
        return operations.compare.beside(found, records, scope.transport)


@on_run
def tensorboard(
    scope: Scope,
    port: Port = 0,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the event files here, and show the copies as they grow.")
    ] = False,
    open_it: OpenIt = False,
    output: OutputOption = "text",
) -> None:
    """Run TensorBoard next to the event files, on a port of this machine."""
    record = scope.placed()
    found_files = operations.tensorboard.find_event_files(record, scope.transport)
    errors.show_host_errors(found_files.errors)
    if found_files.run is None:
        exit_for(found_files.errors, others=None)
        errors.note(f"there is no run of {record.cluster}", "dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)
    python = (
        operations.tensorboard.local.find_python()
        if copy or record.event_urls or _may_need_copies(found_files)
        else None
    )
    place = operations.tensorboard.choose(
        found_files, record.coordinator, copy=copy, here=python is not None, urls=record.event_urls
    )
    render.tensorboard.say_place(place, found_files)

    with ExitStack() as stack:
        stack.enter_context(scope.on_interrupt("TensorBoard has ended, and nothing of it is left"))
        here = stack.enter_context(listener(port, apart=True))
        serving = stack.enter_context(ExitStack())

        def begin(connect: Callable[[], Upstream], dirs: list[str]) -> None:
            document = render.tensorboard.document(place, found_files.run)
            serving.enter_context(_served(here, connect, document, open_it=open_it, json=output == "json"))
            render.tensorboard.say_shown(place, dirs)

        if place.host is not None:
            _run_there(scope, record, place.host, begin)
        elif python is None:
            raise operations.tensorboard.none_here()
        else:
            _run_here(scope, record, (python, found_files, place), begin)


@contextmanager
def _served(
    here: socket.socket, connect: Callable[[], Upstream], document: dict[str, object], *, open_it: bool, json: bool
) -> Iterator[None]:
    door = operations.webserver.Door()
    with ExitStack() as stack:
        server = stack.enter_context(
            operations.webserver.Server(
                here, door, render.dashboard.entrance("dtctl tensorboard"), operations.tensorboard.tunnel.proxy(connect)
            )
        )
        door.on_entry = lambda: render.dashboard.show_next_url(server.address, document, json=json)
        render.dashboard.show_url(server.address, document, json=json)
        if open_it:
            stack.enter_context(operations.webserver.opened(render.dashboard.entered(server.address)))
        yield


def _may_need_copies(found_files: EventFileSources) -> bool:
    """Whether copies may be needed: no host has both all event files and TensorBoard."""
    every = {key for answer in found_files.answers.values() for key in operations.tensorboard.keys_of(answer)}
    return not any(
        answer["tensorboard"] and operations.tensorboard.keys_of(answer) == every
        for answer in found_files.answers.values()
    )


def _run_there(scope: Scope, record: RunRecord, host: str, begin: Begin) -> None:
    with operations.tensorboard.tunnel.Tunnel(record, scope.transport, host) as tunnel:
        begin(tunnel.connect, tunnel.begin()["dirs"])
        render.tensorboard.show_end(host, tunnel.wait())
        raise typer.Exit(ExitCode.RUN_FAILED)


def _run_here(scope: Scope, record: RunRecord, found: tuple[str, EventFileSources, Location], begin: Begin) -> None:
    python, found_files, place = found
    with (
        operations.tensorboard.Copies() as copies,
        operations.tensorboard.local.Here(python, copies.place, copies.directory) as board,
    ):
        awaited = {*place.sources, *place.urls}
        failed: list[DtctlError] = []
        shown = False
        for event in operations.tensorboard.follow_copies(record, scope.transport, place, found_files, copies):
            board.check()
            if isinstance(event, operations.client.streams.Disconnected | operations.client.streams.Reconnected):
                errors.show_contact(event)
            if isinstance(event, operations.client.streams.Disconnected) and event.final:
                failed.append(event.error)
            if isinstance(event, operations.tensorboard.Copied | operations.client.streams.Disconnected):
                awaited.discard(event.host)
            if failed and len(failed) == len(place.sources) and not place.urls:
                raise typer.Exit(failed[0].exit_code)
            if not awaited and not shown:
                board.begin()
                begin(board.connect, [])
                shown = True
