"""dtctl dashboard"""

from __future__ import annotations

import os
from contextlib import ExitStack

from dtctl.cli.exits import exit_without_run
from dtctl.cli.interrupts import hang_up_interrupts
from dtctl.cli.listening import OpenIt, Port, listener
from dtctl.cli.options import OutputOption, Scope, on_run
from dtctl.errors import DtctlError


@on_run
def dashboard(
    scope: Scope,
    port: Port = 0,
    open_it: OpenIt = False,
    output: OutputOption = "text",
) -> None:
    """Show the run in a browser, live, as `dtctl report` shows it once, until Ctrl-C."""
    from dtctl.operations.dashboard.board import Board
    from dtctl.operations.dashboard.server import answering, looks
    from dtctl.operations.report.following import Following
    from dtctl.operations.webserver import Door, Server, opened
    from dtctl.render.dashboard.page import entered, entrance, headers, parts, unknown, whole
    from dtctl.render.dashboard.saying import show_next_url, show_url

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
        answer = answering(board, whole, headers())
        server = stack.enter_context(Server(here, door, entrance("dtctl dashboard"), answer))
        stack.callback(board.close)
        document = {"kind": "Dashboard", "run": run}
        goes_on = "it works once, in one browser; Ctrl-C ends the dashboard, and the run goes on"
        door.on_entry = lambda: show_next_url(server.address, document, json=output == "json")
        show_url(server.address, document, goes_on, json=output == "json")
        if open_it:
            stack.enter_context(opened(entered(server.address)))
        for told in looks(following, report, board, lambda: server.alive):
            if isinstance(told, DtctlError):
                board.put(unknown(told))
                continue
            board.put({**parts(told), **unknown(None)})
            scope.remember_end(told.status)
        raise DtctlError("the server of the dashboard has ended by itself")
