"""dtctl top"""

from __future__ import annotations

import typer

from dtctl.cli.late import operations, rooms
from dtctl.cli.options import Scope, on_run
from dtctl.model import TaskId
from dtctl.operations.run_record import RunRecord

LOG_LINES = 500


@on_run
def top(scope: Scope) -> None:
    """Watch the run, its tasks and their logs on a full screen (needs dtctl[top])."""
    record, transport = scope.record(), scope.transport
    rooms.top.need_screen()

    def open_log(known: RunRecord, task: TaskId) -> operations.client.streams.Feed:
        return operations.client.streams.Feed(
            lambda: operations.follow.follow_log(known, transport, task, LOG_LINES)
        ).start()

    run = operations.client.streams.Feed(lambda: operations.watch.watch_run(record, transport)).start()
    first = run.first()  # before the screen, because errors and questions need the terminal
    known = first.record if isinstance(first, operations.snapshot.RunStatus) else record
    loss = operations.client.streams.Feed(lambda: rooms.metrics.operation.follow_loss(known, transport))
    speed = operations.client.streams.Feed(lambda: rooms.speed.operation.follow_speed(known, transport))
    try:
        if isinstance(first, BaseException):
            raise first
        status, code = rooms.top.show(run, loss.start(), speed.start(), open_log)
    finally:
        run.close()
        loss.close()
        speed.close()
    if status is not None:
        scope.memory.remember(status)
    if code is not None:
        raise typer.Exit(code)
