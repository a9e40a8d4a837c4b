"""dtctl dashboard"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dtctl.cli.exits import exit_without_run
from dtctl.cli.interrupts import hang_up_interrupts
from dtctl.cli.listening import OpenIt, Port, listener
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError

if TYPE_CHECKING:
    from dtctl.operations.dashboard.server import Pages


@on_run
def dashboard(
    scope: Scope,
    port: Port = 0,
    open_it: OpenIt = False,
    output: OutputOption = "text",
) -> None:
    """Show the run in a browser, live, as `dtctl report` shows it once, until Ctrl-C. Needs dtctl[dashboard]."""
    from dtctl.operations.dashboard.showing import looks, need_server
    from dtctl.operations.report.following import Following
    from dtctl.render.dashboard import saying
    from dtctl.render.dashboard.page import entered, parts, unknown

    need_server()
    from dtctl.operations.dashboard.board import Board
    from dtctl.operations.dashboard.door import Door
    from dtctl.operations.dashboard.opening import opened
    from dtctl.operations.dashboard.server import Server

    with ExitStack() as stack:
        here = stack.enter_context(listener(port))
        following = stack.enter_context(Following(scope.record(), scope.transport, os.environ))
        report = following.look()
        if not report.status.time:
            exit_without_run(report)
        run, board, door = report.status.record.run, Board(), Door()
        board.put({**parts(report), **unknown(None)})
        scope.remember_end(report.status)
        stack.enter_context(hang_up_interrupts())
        stack.enter_context(scope.left("the dashboard has ended, and the run goes on"))
        server = stack.enter_context(Server(here, _pages(), board, door))
        door.on_entry = lambda _: saying.show_next_url(server.address, run, json=output == "json")
        saying.show_url(server.address, run, json=output == "json")
        if open_it:
            stack.enter_context(opened(entered(server.address)))
        for told in looks(following, report, board, lambda: server.alive):
            if isinstance(told, DtctlError):
                board.put(unknown(told))
                continue
            board.put({**parts(told), **unknown(None)})
            scope.remember_end(told.status)
        raise DtctlError("the server of the dashboard has ended by itself")


def _pages() -> Pages:
    from dtctl.operations.dashboard.server import Pages
    from dtctl.render.dashboard import page

    return Pages(page.policy(), page.whole, page.entered, page.refused())
