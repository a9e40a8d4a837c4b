"""logs and events: what the trainers write, and the run's history, from its coordinator's host or of one host alone."""

from __future__ import annotations

from ..host import files
from ..host.errors import Refused
from ..logs import serving
from ..records import kinds
from ..records.kinds import InvalidValue, checked
from ..records.spec import coordinates
from ..records.whole_run import Event, HistoryEvent
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

    from ..conversation import Conversation
    from ..records.answers import EventsResult, RunResult
    from ..records.requests import EventsRequest, LogsRequest
    from ..records.run_state import State


def logs(talk: Conversation, request: LogsRequest) -> RunResult:
    run = runs.need(talk, request)
    tasks = run.tasks(request["tasks"])

    def state() -> State:
        run.keep_supervised()
        return run.state()

    talk.wire.start_listening()
    serving.serve(run.files.directory, tasks, request, talk.wire, state)
    return {"run": run.id}


LONGEST_LINE = 1 << 20
_CHUNK = 1 << 20


def events(talk: Conversation, request: EventsRequest) -> EventsResult:
    """Sends a frame for each line from number `from` on (the last -`from` lines when it is negative).

    With `follow` it continues until the run has ended.
    """
    run = runs.need(talk, request)
    if request["whole"] and not coordinates(run.spec):
        raise Refused("not_coordinator", "this host does not coordinate run %s" % run.id)
    lines = _HistoryLines(talk, run, request["from"] or 0)

    def refresh() -> bool:
        ended = run.has_ended()  # before the lines are read: what has ended by then has written all that it will
        lines.send_new()
        return ended

    lines.send_new()
    if request["follow"]:
        talk.wait(refresh, float("inf"))
    return {"run": run.id, "next": lines.number, "passed_over": lines.passed_over}


class _HistoryLines:
    """Sends lines as they come."""

    def __init__(self, talk: Conversation, run: runs.Run, begin: int) -> None:
        whole = coordinates(run.spec)
        path = run.files.path("history.jsonl" if whole else "events.jsonl")
        if begin < 0:
            begin = max(0, begin + sum(1 for _ in Lines(path).new()))
        self.number = 0
        self.passed_over = 0
        self._talk = talk
        self._begin = begin
        self._lines = Lines(path)
        self._host = None if whole else run.spec["host"]

    def send_new(self) -> None:
        """What is new."""
        for line in self._lines.new():
            if self.number >= self._begin:
                event = _history_line(line, self.number, self._host)
                if event is not None:
                    self._talk.send("event", event)
                self.passed_over += event is None
            self.number += 1


def _history_line(line: Optional[bytes], number: int, host: Optional[str]) -> Optional[HistoryEvent]:
    """Of a line of history.jsonl, or with `host` of its events.jsonl; None for one that something has damaged."""
    if line is None:
        return None
    try:
        raw = kinds.parse_json(line)
        if host is None:
            return checked(HistoryEvent, raw)
        return checked(HistoryEvent, dict(checked(Event, raw), n=number, host=host, index=number))
    except (ValueError, InvalidValue):
        return None


class Lines:
    """Whole lines of a file that grows, or is not there yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> Iterator[Optional[bytes]]:
        """Those that have been added since the last call; None for one that is too long to be ours."""
        try:
            descriptor = files.descriptor(self._path)
        except FileNotFoundError:
            return
        with open(descriptor, "rb") as file:
            file.seek(self._offset)
            kept, size = b"", 0
            for chunk in iter(lambda: file.read(_CHUNK), b""):
                *whole, rest = chunk.split(b"\n")
                for line in whole:
                    size += len(line)
                    self._offset += size + 1
                    yield kept + line if size <= LONGEST_LINE else None
                    kept, size = b"", 0
                kept, size = (kept + rest)[: LONGEST_LINE + 1], size + len(rest)
