"""dtctl tensorboard"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from dtctl.cli.exits import exit_for
from dtctl.cli.interrupts import hang_up_interrupts
from dtctl.cli.listening import OpenIt, Port, listener
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from dtctl.operations.board.looking import Looked, Place
    from dtctl.operations.memory.record import RunRecord

    Begun = Callable[[int, list[str]], None]
    """Called with the port and the directories once a browser may come."""


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
    from dtctl.operations.board import here
    from dtctl.operations.board.looking import choose, look, none_here
    from dtctl.render import errors
    from dtctl.render.live import board

    record = scope.record()
    looked = look(record, scope.transport)
    errors.show_host_errors(looked.errors)
    if looked.run is None:
        exit_for(looked.errors, others=None)
        errors.note(f"there is no run of {record.cluster}", "dtctl up    starts one")
        raise typer.Exit(ExitCode.RUN_FAILED)
    python = here.find_python() if copy or _may_need_copies(looked) else None
    place = choose(looked, record.coordinator, copy=copy, here=python is not None)
    board.say_place(place, looked)

    def begun(port: int, dirs: list[str]) -> None:
        url = f"http://127.0.0.1:{port}/"
        board.show_url(url, place, looked.run, dirs, json=output == "json")
        if open_it:
            import webbrowser

            webbrowser.open(url)

    with hang_up_interrupts(), scope.left("TensorBoard has ended, and nothing of it is left"):
        if place.host is not None:
            _run_there(scope, record, place.host, port, begun)
        elif python is None:
            raise none_here()
        else:
            _run_here(scope, record, (python, looked, place), port, begun)


def _may_need_copies(looked: Looked) -> bool:
    """Not every host that has event files has all of them, and TensorBoard."""
    from dtctl.operations.board.looking import keys_of

    every = {key for answer in looked.answers.values() for key in keys_of(answer)}
    return not any(answer["tensorboard"] and keys_of(answer) == every for answer in looked.answers.values())


def _run_there(scope: Scope, record: RunRecord, host: str, port: int, begun: Begun) -> None:
    from dtctl.operations.board.tunnel import Tunnel
    from dtctl.render.live import board

    with listener(port) as here, Tunnel(record, scope.transport, host, here) as tunnel:
        result = tunnel.serve(lambda told: begun(here.getsockname()[1], told["dirs"]))
        board.show_end(host, result)
        raise typer.Exit(ExitCode.RUN_FAILED)


def _run_here(scope: Scope, record: RunRecord, found: tuple[str, Looked, Place], port: int, begun: Begun) -> None:
    from dtctl.operations.asking.streams import Away, Back
    from dtctl.operations.board.copies import Copied, Copies, follow_copies
    from dtctl.operations.board.here import Here, free_port
    from dtctl.render import errors

    python, looked, place = found
    if port:
        listener(port).close()
    with ExitStack() as stack:
        copies = stack.enter_context(Copies())
        board = stack.enter_context(Here(python, copies.place, copies.directory, port or free_port()))
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
                begun(board.port, [])
                shown = True
