"""The end of the chosen task's log, below the table."""

from __future__ import annotations

from collections.abc import Callable

from dtctl.model import TaskId
from dtctl.operations.client.streams import Feed
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.top.model import Line
from dtctl.rooms.top.screens import LogText

SETTLED_S = 0.5
"""How long a task has to be chosen before its log is asked for: the choice moves fast."""


class Tail:
    """Follows one log at a time. Times are of the monotonic clock."""

    def __init__(self, open_log: Callable[[RunRecord, TaskId], Feed]) -> None:
        self._open_log = open_log
        self._task: TaskId | None = None
        self._chosen_at = 0.0
        self._feed: Feed | None = None
        self._text = LogText()

    def poll(self, record: RunRecord, task: TaskId | None, now: float) -> bool:
        """Follows the log of this task, once it is settled. Returns whether there is news."""
        if task != self._task:
            self.close()
            self._task, self._chosen_at = task, now
            return True
        if self._feed is None:
            if task is None or now - self._chosen_at < SETTLED_S:
                return False
            self._feed = self._open_log(record, task)
        events = self._feed.take()
        for event in events:
            if not isinstance(event, BaseException):  # the table shows what is wrong with a host
                self._text.receive(event)
        return bool(events)

    def lines(self, rows: int) -> list[Line]:
        """Its last lines under a title, in as many rows; none without a task."""
        if self._task is None or rows < 2:
            return []
        shown = list(self._text.lines)[-(rows - 1) :]
        return [[(f"{self._task}", "bold"), ("  the end of its log; Enter opens it", "dim")], *shown]

    def close(self) -> None:
        """Ends the conversation; the text is that of another task from now on."""
        if self._feed is not None:
            self._feed.close(0.0)
        self._feed, self._text = None, LogText()
