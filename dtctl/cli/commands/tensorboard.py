"""dtctl tensorboard"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.interrupts import hang_up_interrupts
from dtctl.cli.listening import OpenIt, Port, listener
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from dtctl.operations.history.record import RunRecord
    from dtctl.operations.tensorboard.copies import Looked, Place
    from dtctl.operations.tensorboard.tunnel import Upstream

    Begin = Callable[[Callable[[], Upstream], list[str]], None]
    """Lets browsers come, once there are connections for them; with the directories that are shown."""


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
    """Run TensorBoard for the run, where its event files are, and bring it to a port of this machine, until Ctrl-C."""
    from dtctl.operations.tensorboard import local
    from dtctl.operations.tensorboard.copies import choose, look, none_here
    from dtctl.render import errors
    from dtctl.render import tensorboard as shown

    record = scope.record()
    looked = look(record, scope.transport)
    errors.show_host_errors(looked.errors)
    if looked.run is None:
        exit_for(looked.errors, others=None)
        errors.note(f"there is no run of {record.cluster}", "dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)
    python = local.find_python() if copy or _may_need_copies(looked) else None
    place = choose(looked, record.coordinator, copy=copy, here=python is not None)
    shown.say_place(place, looked)

    with ExitStack() as stack:
        stack.enter_context(hang_up_interrupts())
        stack.enter_context(scope.left("TensorBoard has ended, and nothing of it is left"))
        here = stack.enter_context(listener(port, apart=True))
        serving = stack.enter_context(ExitStack())

        def begin(connect: Callable[[], Upstream], dirs: list[str]) -> None:
            document = shown.document(place, looked.run)
            serving.enter_context(_served(here, connect, document, open_it=open_it, json=output == "json"))
            shown.say_shown(place, dirs)

        if place.host is not None:
            _run_there(scope, record, place.host, begin)
        elif python is None:
            raise none_here()
        else:
            _run_here(scope, record, (python, looked, place), begin)


@contextmanager
def _served(
    here: socket.socket, connect: Callable[[], Upstream], document: dict[str, object], *, open_it: bool, json: bool
) -> Iterator[None]:
    from dtctl.operations.tensorboard.tunnel import proxy
    from dtctl.operations.webserver import Door, Server, opened
    from dtctl.render.dashboard.page import entered, entrance
    from dtctl.render.dashboard.saying import show_next_url, show_url

    door = Door()
    with ExitStack() as stack:
        server = stack.enter_context(Server(here, door, entrance("dtctl tensorboard"), proxy(connect)))
        door.on_entry = lambda: show_next_url(server.address, document, json=json)
        show_url(server.address, document, json=json)
        if open_it:
            stack.enter_context(opened(entered(server.address)))
        yield


def _may_need_copies(looked: Looked) -> bool:
    """Not every host that has event files has all of them, and TensorBoard."""
    from dtctl.operations.tensorboard.copies import keys_of

    every = {key for answer in looked.answers.values() for key in keys_of(answer)}
    return not any(answer["tensorboard"] and keys_of(answer) == every for answer in looked.answers.values())


def _run_there(scope: Scope, record: RunRecord, host: str, begin: Begin) -> None:
    from dtctl.operations.tensorboard.tunnel import Tunnel
    from dtctl.render.tensorboard import show_end

    with Tunnel(record, scope.transport, host) as tunnel:
        begin(tunnel.connect, tunnel.begin()["dirs"])
        show_end(host, tunnel.wait())
        raise typer.Exit(ExitCode.RUN_FAILED)


def _run_here(scope: Scope, record: RunRecord, found: tuple[str, Looked, Place], begin: Begin) -> None:
    from dtctl.operations.client.streams import Away, Back
    from dtctl.operations.tensorboard import local
    from dtctl.operations.tensorboard.copies import Copied, Copies, follow_copies
    from dtctl.render import errors

    python, looked, place = found
    with Copies() as copies, local.Here(python, copies.place, copies.directory) as board:
        awaited = set(place.sources)
        failed: list[DtctlError] = []
        shown = False
        for told in follow_copies(record, scope.transport, place, looked, copies):
            board.check()
            if isinstance(told, Away):
                errors.show_host_errors({told.host: told.error})
                failed += [told.error] if told.final else []
            elif isinstance(told, Back):
                errors.note(f"{told.host} can be reached again")
            if isinstance(told, Copied | Away):
                awaited.discard(told.host)
            if len(failed) == len(place.sources):
                raise typer.Exit(failed[0].exit_code)
            if not awaited and not shown:
                board.begin()
                begin(board.connect, [])
                shown = True
