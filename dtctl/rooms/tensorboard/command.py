"""dtctl tensorboard: a run in a browser"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated

import typer

from dtctl.cli.ending import exit_for
from dtctl.cli.late import errors, operations, rooms
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError, ExitCode
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.pages.command import OpenIt, Port, listener
from dtctl.rooms.tensorboard import EventFileSources, Location
from dtctl.rooms.tensorboard.tunnel import Upstream

Begin = Callable[[Callable[[], Upstream], list[str]], None]
"Lets browsers come, once there are connections for them; with the directories that are shown."


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
    found_files = rooms.tensorboard.find_event_files(record, scope.transport)
    errors.show_host_errors(found_files.errors)
    if found_files.run is None:
        exit_for(found_files.errors, others=None)
        errors.note(f"there is no run of {record.cluster}", "dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)
    python = (
        rooms.tensorboard.local.find_python() if copy or record.event_urls or _may_need_copies(found_files) else None
    )
    place = rooms.tensorboard.choose(
        found_files, record.coordinator, copy=copy, here=python is not None, urls=record.event_urls
    )
    rooms.tensorboard.screen.say_place(place, found_files)

    with ExitStack() as stack:
        stack.enter_context(scope.on_interrupt("TensorBoard has ended, and nothing of it is left"))
        here = stack.enter_context(listener(port, apart=True))
        serving = stack.enter_context(ExitStack())
        beginning = stack.enter_context(ExitStack())
        beginning.enter_context(rooms.tensorboard.screen.beginning(place))

        def begin(connect: Callable[[], Upstream], dirs: list[str]) -> None:
            beginning.close()
            document = rooms.tensorboard.screen.document(place, found_files.run)
            serving.enter_context(_served(here, connect, document, open_it=open_it, json=output == "json"))
            rooms.tensorboard.screen.say_shown(place, dirs)

        if place.host is not None:
            _run_there(scope, record, place.host, begin)
        elif python is None:
            raise rooms.tensorboard.none_here()
        else:
            _run_here(scope, record, (python, found_files, place), begin)


@contextmanager
def _served(
    here: socket.socket, connect: Callable[[], Upstream], document: dict[str, object], *, open_it: bool, json: bool
) -> Iterator[None]:
    door = rooms.pages.webserver.Door()
    with ExitStack() as stack:
        server = stack.enter_context(
            rooms.pages.webserver.Server(
                here,
                door,
                rooms.pages.dashboard_page.entrance("dtctl tensorboard"),
                rooms.tensorboard.tunnel.proxy(connect),
            )
        )
        door.on_entry = lambda: rooms.pages.dashboard_page.show_next_url(server.address, document, json=json)
        rooms.pages.dashboard_page.show_url(server.address, document, json=json)
        if open_it:
            stack.enter_context(rooms.pages.webserver.opened(rooms.pages.dashboard_page.entered(server.address)))
        yield


def _may_need_copies(found_files: EventFileSources) -> bool:
    """Whether copies may be needed: no host has both all event files and TensorBoard."""
    every = {key for answer in found_files.answers.values() for key in rooms.tensorboard.keys_of(answer)}
    return not any(
        answer["tensorboard"] and rooms.tensorboard.keys_of(answer) == every for answer in found_files.answers.values()
    )


def _run_there(scope: Scope, record: RunRecord, host: str, begin: Begin) -> None:
    with rooms.tensorboard.tunnel.Tunnel(record, scope.transport, host) as tunnel:
        begin(tunnel.connect, tunnel.begin()["dirs"])
        rooms.tensorboard.screen.show_end(host, tunnel.wait())
        raise typer.Exit(ExitCode.RUN_FAILED)


def _run_here(scope: Scope, record: RunRecord, found: tuple[str, EventFileSources, Location], begin: Begin) -> None:
    python, found_files, place = found
    with (
        rooms.tensorboard.Copies() as copies,
        rooms.tensorboard.local.Here(python, copies.place, copies.directory) as board,
    ):
        awaited = {*place.sources, *place.urls}
        failed: list[DtctlError] = []
        shown = False
        for event in rooms.tensorboard.follow_copies(record, scope.transport, place, found_files, copies):
            board.check()
            if isinstance(event, operations.client.streams.Disconnected | operations.client.streams.Reconnected):
                errors.show_contact(event)
            if isinstance(event, operations.client.streams.Disconnected) and event.final:
                failed.append(event.error)
            if isinstance(event, rooms.tensorboard.Copied | operations.client.streams.Disconnected):
                awaited.discard(event.host)
            if failed and len(failed) == len(place.sources) and not place.urls:
                raise typer.Exit(failed[0].exit_code)
            if not awaited and not shown:
                board.begin()
                begin(board.connect, [])
                shown = True
