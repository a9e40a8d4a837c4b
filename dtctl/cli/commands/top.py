"""dtctl top"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dtctl.cli.options import Scope, on_run

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.history.record import RunRecord
    from dtctl.operations.watching.feed import Feed

LOG_LINES = 500


@on_run
def top(scope: Scope) -> None:
    """Watch a run on a full screen: how far it is, its tasks and their logs, and what is wrong. Needs dtctl[top]."""
    from dtctl.operations.status import RunStatus
    from dtctl.operations.watching.feed import Feed
    from dtctl.operations.watching.log import follow_log
    from dtctl.operations.watching.loss import follow_loss
    from dtctl.operations.watching.run import watch_run
    from dtctl.render.top.running import need_screen, show

    record, transport = scope.record(), scope.transport
    need_screen()

    def open_log(known: RunRecord, task: TaskId) -> Feed:
        return Feed(lambda: follow_log(known, transport, task, LOG_LINES)).start()

    run = Feed(lambda: watch_run(record, transport)).start()
    first = run.first()  # before the screen: errors and questions have the terminal for themselves
    known = first.record if isinstance(first, RunStatus) else record
    loss = Feed(lambda: follow_loss(known, transport))
    try:
        if isinstance(first, BaseException):
            raise first
        status, code = show(run, loss.start(), open_log)
    finally:
        run.close()
        loss.close()
    if status is not None:
        scope.remember_end(status)
    if code is not None:
        raise typer.Exit(code)
