"""Watching a run to its end, as `up -f`, `logs -f` and `wait` do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from dtctl.cli.options import Scope
from dtctl.errors import ExitCode

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.follow import Event
    from dtctl.operations.logs import LogRequest
    from dtctl.operations.memory.record import RunRecord
    from dtctl.operations.status import RunStatus
    from dtctl.render.logs import LogPrinter


def follow_to_the_end(scope: Scope, record: RunRecord, *, lines: int | None, raw: bool) -> None:
    """Shows all logs and then the result, which is the exit code. Ctrl-C leaves the run alone."""
    from dtctl.operations.logs import LogRequest
    from dtctl.render.logs import LogPrinter

    tasks = tuple(record.roster)
    printer = LogPrinter(tasks, prefix=True, timestamps=False, raw=raw)
    finish(watch(scope, record, LogRequest(tasks, lines=lines), printer), printer)


def watch(
    scope: Scope,
    record: RunRecord,
    wanted: LogRequest,
    printer: LogPrinter | None,
    *,
    timeout_s: float | None = None,
) -> RunStatus:
    """Prints events as they come until the run has ended."""
    from dtctl.operations.follow import Ended, follow
    from dtctl.render import errors
    from dtctl.render.narrator import Narrator

    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    narrate: Callable[[Event], None] = Narrator(record.coordinator, printer)
    try:
        for event in follow(record, scope.transport, wanted):
            if isinstance(event, Ended):
                scope.remember_end(event.status)
                return event.status
            if event is not None:
                narrate(event)
            if deadline is not None and time.monotonic() > deadline:
                errors.note("the time to wait is over; the run continues")
                raise typer.Exit(ExitCode.TIMEOUT)
    except KeyboardInterrupt:
        if not scope.transport.reached:
            raise
        errors.below()
        errors.note("detached: the run continues", "dtctl logs -f    follow it again", "dtctl stop       end it")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    raise AssertionError("following ends with Ended")


def finish(status: RunStatus, followed: LogPrinter | None = None) -> None:
    """Shows the end; raises Exit with the run's result. `followed` has shown the logs."""
    from dtctl.render.result import ended_exit_code, show_ended

    show_ended(status, followed)
    raise typer.Exit(ended_exit_code(status))


def chosen(record: RunRecord, words: list[str] | None) -> tuple[TaskId, ...]:
    from dtctl.operations.selection import select_tasks

    return select_tasks(record, words or [])
