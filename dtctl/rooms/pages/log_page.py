"""The logs of tasks for the browsers that read a dashboard: the last lines of one, and what is added to it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.run.log_text import is_start_up
from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Disconnected, Feed, Reconnected
from dtctl.operations.logs import LogLines
from dtctl.render.format import count
from dtctl.render.terminal.safe import log_lines, one_line

LINES = 200
"""The past lines of a log that are sent first."""
MOST_LINES = 100
"""The most lines of one message: of a log that grows faster the newest are sent."""
EVERY_S = 1.0
"""The time between two messages."""
ALIVE_S = 15.0
MOST_OF_LINE = 2000
"""The most characters of a line."""
MOST_READERS = 8
"""The logs that are followed at once: each needs a connection to the host of its task."""


class LogTails:
    """The logs that browsers follow now. Its methods are called by the threads of readers."""

    def __init__(self, tasks: Callable[[], Collection[TaskId]], open_log: Callable[[TaskId], Feed]) -> None:
        """`tasks`: those of the run now; `open_log` begins to follow the log of one."""
        self._tasks = tasks
        self._open = open_log
        self._readers = threading.BoundedSemaphore(MOST_READERS)

    def follow(self, name: str, closed: Callable[[], bool]) -> Generator[str, None, None] | int:
        """The log of the task of this name as server-sent events, until `closed`; or the HTTP status of a refusal."""
        task = next((one for one in self._tasks() if str(one) == name), None)
        if task is None:
            return 404
        if not self._readers.acquire(blocking=False):
            return 503
        return self._messages(task, closed)

    def _messages(self, task: TaskId, closed: Callable[[], bool]) -> Generator[str, None, None]:
        text, sent, feed = _Text(), time.monotonic(), self._open(task)
        try:
            yield "event: begin\ndata: \n\n"
            while not closed():
                lines = text.of(feed.take())
                if lines:
                    yield f"event: lines\ndata: {json.dumps(lines, ensure_ascii=False)}\n\n"
                elif time.monotonic() - sent > ALIVE_S:
                    yield ": alive\n\n"
                else:
                    time.sleep(EVERY_S)
                    continue
                sent = time.monotonic()
                time.sleep(EVERY_S)
        finally:
            feed.close(0.0)
            self._readers.release()


class _Text:
    """The lines to show for what is read of a log, as a terminal shows them."""

    def __init__(self) -> None:
        self._attempt: int | None = None
        self._hidden = 0
        """Lines of TensorFlow's start, which are left out as `dtctl logs` does."""
        self._first = True

    def of(self, events: list[object]) -> list[str]:
        """Secrets are masked here once more: the agent of an earlier run may know fewer forms."""
        lines = [line for event in events for line in self._of_event(event)]
        most = LINES if self._first else MOST_LINES
        self._first = self._first and not lines
        if len(lines) > most:
            left = len(lines) - most
            lines = [f"--- {count(left, 'line')} left out: dtctl logs shows all ---", *lines[left:]]
        return hide_text("\n".join(lines)).split("\n") if lines else []

    def _of_event(self, event: object) -> Iterator[str]:
        if isinstance(event, LogLines):
            yield from self._of_lines(event)
        elif isinstance(event, Disconnected):
            yield f"--- {one_line(event.host)}: {one_line(event.error.summary)} ---"
        elif isinstance(event, Reconnected):
            yield f"--- {one_line(event.host)} can be reached again ---"
        elif isinstance(event, DtctlError):
            yield f"--- {one_line(event.summary)} ---"
        elif isinstance(event, BaseException):
            raise event

    def _of_lines(self, event: LogLines) -> Iterator[str]:
        if self._attempt not in (None, event.log["attempt"]):
            yield f"--- attempt {event.log['attempt']} ---"
        self._attempt = event.log["attempt"]
        if event.log["truncated"]:
            yield "--- the log was cut; from its new start ---"
        shown = log_lines(event.data, color=False)
        kept = [line for line in shown if not is_start_up(line, without_gpus=event.log["without_gpus"])]
        self._hidden += len(shown) - len(kept)
        if kept and self._hidden:
            yield f"[... {count(self._hidden, 'line')} of TensorFlow's start; dtctl logs --raw shows them]"
            self._hidden = 0
        for line in kept:
            yield one_line(line if len(line) <= MOST_OF_LINE else f"{line[:MOST_OF_LINE]} ...")
