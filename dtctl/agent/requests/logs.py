"""logs and events: what the trainers write (docs/agent.md, "logs"), and the run's history, from its coordinator's host
or of one host alone.
"""

from __future__ import annotations

import heapq
import os
import time
from functools import partial

from ..conversation import Gone, Wire
from ..host import files, paths
from ..host.errors import Refused
from ..host.paths import attempt_directory, read_record, task_directory
from ..host.secrets import Masks
from ..logs.reader import AttemptLog
from ..logs.sieve import Selection
from ..records import kinds
from ..records.kinds import InvalidValue, checked
from ..records.run_state import Ending, Entry, State
from ..records.spec import coordinates
from ..records.values import FINAL, Variables
from ..records.whole_run import Event, HistoryEvent
from ..vitals.gpus import to_use_none
from . import runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Collection, Iterator, List, Optional, Tuple

    from ..conversation import Conversation
    from ..logs.reader import LogFrame
    from ..records import answers
    from ..records.answers import EventsResult, RunResult
    from ..records.requests import EventsRequest, LogsRequest


def logs(talk: Conversation, request: LogsRequest) -> RunResult:
    run = runs.need(talk, request)
    tasks = run.tasks(request["tasks"])

    def state() -> State:
        run.keep_supervised()
        return run.state()

    talk.wire.start_listening()
    without = [task["id"] for task in run.spec["tasks"] if to_use_none(task)]
    serve(run.files.directory, tasks, request, talk.wire, state, without)
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
        """Sends the new events."""
        for line in self._lines.new():
            if self.number >= self._begin:
                event = _history_line(line, self.number, self._host)
                if event is not None:
                    self._talk.send("event", event)
                self.passed_over += event is None
            self.number += 1


def _history_line(line: Optional[bytes], number: int, host: Optional[str]) -> Optional[HistoryEvent]:
    """The event in a line of history.jsonl, or with `host` of its events.jsonl; None for a damaged line."""
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
        """The lines that were added since the last call; None for one that is too long to be dtctl's."""
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


class TaskLog:
    """`entry` is that of state.json, here and in `read`. `without_gpus`: it is to use none."""

    def __init__(
        self,
        run_dir: str,
        task: str,
        request: LogsRequest,
        selection: Selection,
        entry: Entry,
        *,
        without_gpus: bool = False,
    ) -> None:
        self.task = task
        self.ended = False
        """Whether no more output will follow."""
        self._run_dir = run_dir
        self._without_gpus = without_gpus
        self._selection = selection
        self._entry = entry
        self._directory = task_directory(run_dir, task)
        self._listed: Tuple[Any, List[int]] = (None, [])
        self._only = request["previous"] or request["attempt"] is not None
        self._log: Optional[AttemptLog] = None
        self._attempt = 0
        """The attempt that is read, 0 while there is none."""
        resumed = request["resume"].get(task)
        if resumed is not None:
            attempt, offset = resumed
            if attempt in self._attempts():
                self._attempt, self._log = attempt, self._open(attempt, offset)
        else:
            self._begin(request)

    def has_grown(self) -> bool:
        """Whether the length of the current log has changed since the last read."""
        return self._log is not None and self._log.has_grown()

    def read(self, entry: Entry) -> Iterator[LogFrame]:
        """Frames with what is new in the current attempt and in those that have begun since."""
        self._entry, final = entry, entry["state"] in FINAL
        while True:
            later = [number for number in self._attempts() if number > self._attempt]
            if self._log is not None:
                over = final or bool(later) or self._has_ended(self._attempt)
                yield from self._log.read(over)
                if not over:
                    return
                if self._only:
                    self.ended = True
                    return
            if not later:
                self.ended = final
                return
            self._attempt, self._log = later[0], self._open(later[0], 0)

    def _begin(self, request: LogsRequest) -> None:
        """Chooses the first attempt, and the place in it."""
        wanted = self._wanted(request)
        lines = self._selection.lines
        if lines is None or len(wanted) < 2:
            if wanted:
                self._attempt, self._log = wanted[0], self._open(wanted[0], None)
            return
        found = 0
        for attempt in reversed(wanted):  # the last lines of all of them
            self._attempt, self._log = attempt, self._open(attempt, None)
            over = attempt != wanted[-1] or self._has_ended(attempt)
            found += self._log.begin(over, lines - found)
            if found >= lines:
                return

    def _wanted(self, request: LogsRequest) -> List[int]:
        attempts = self._attempts()
        if self._only:
            return [self._named(request, attempts)]
        since = self._selection.since
        if since is not None:
            return [one for one in attempts if self._modified(one, "log") >= since] or attempts[-1:]
        return attempts if request["all_attempts"] else attempts[-1:]

    def _named(self, request: LogsRequest, attempts: List[int]) -> int:
        wanted = request["attempt"]
        if wanted is None:
            wanted = attempts[-2] if len(attempts) > 1 else 0
        if wanted not in attempts:
            what = f"attempt {request['attempt']}" if request["attempt"] is not None else "previous attempt"
            known = ", ".join(map(str, attempts)) or "none"
            raise Refused("bad_request", f"{self.task} has no {what}", hint=f"attempts so far: {known}")
        return wanted

    def _open(self, attempt: int, offset: Optional[int]) -> AttemptLog:
        directory = attempt_directory(self._run_dir, self.task, attempt)
        return AttemptLog(
            directory,
            self.task,
            attempt,
            self._selection,
            offset,
            partial(self._has_ended_badly, attempt),
            without_gpus=self._without_gpus,
        )

    def _has_ended(self, attempt: int) -> bool:
        return os.path.exists(self._path(attempt, "exit.json"))

    def _has_ended_badly(self, attempt: int) -> bool:
        """Whether the attempt ended without a request of dtctl, and not with 0."""
        if any(one["attempt"] == attempt and one["asked"] for one in self._entry["history"]):
            return False
        try:
            ending = paths.read_record(self._path(attempt, "exit.json"), Ending)
        except (paths.Damaged, OSError):
            return False
        return ending is not None and ending["code"] != 0

    def _modified(self, attempt: int, name: str) -> float:
        """0 for a file that is missing."""
        try:
            return os.lstat(self._path(attempt, name)).st_mtime
        except FileNotFoundError:
            return 0.0

    def _path(self, attempt: int, name: str) -> str:
        return os.path.join(attempt_directory(self._run_dir, self.task, attempt), name)

    def _attempts(self) -> List[int]:
        """Numbers of the attempts that are meant and have begun, in order; read again only when that has changed."""
        try:
            found = os.stat(self._directory)
            look = (found.st_mtime_ns, found.st_nlink)
            if look != self._listed[0]:
                numbers = paths.attempts(self._directory)
                until = self._selection.until
                if until is not None:
                    numbers = [number for number in numbers if self._modified(number, "start.json") <= until]
                self._listed = look, numbers
        except FileNotFoundError:
            return []
        return self._listed[1]


POLL_S = 0.2
LOOK_S = 0.04
"""The interval between two checks of the logs' lengths, which are cheap: a person waits for the output."""


def serve(
    run_dir: str,
    tasks: List[str],
    request: LogsRequest,
    wire: Wire,
    states: Callable[[], State],
    without_gpus: Collection[str] = (),
) -> None:
    """Sends `log` frames, and `states` frames if requested, until `result` is due, or the reader has disconnected.

    `states` returns the current state.json. `without_gpus`: the tasks that are to use none.
    """
    state = states()
    selection = _selection(run_dir, request, wire)
    try:
        logs = [
            TaskLog(run_dir, task, request, selection, state["tasks"][task], without_gpus=task in without_gpus)
            for task in tasks
        ]
        if request["follow"]:
            _follow(logs, state, request, wire, states)
            return
        _send_states(state, None, request, wire)
        for fields, data in _merged(logs, state):
            wire.send(fields, data)
    except Gone:
        if not wire.is_gone():
            raise


def _follow(logs: List[TaskLog], state: State, request: LogsRequest, wire: Wire, states: Callable[[], State]) -> None:
    shown_serial = None
    while True:
        shown_serial = _send_states(state, shown_serial, request, wire)
        _send_new(logs, state, wire)
        if all(log.ended for log in logs) or wire.is_gone():
            return
        for _ in range(int(POLL_S / LOOK_S)):
            time.sleep(LOOK_S)
            _send_new([log for log in logs if log.has_grown()], state, wire)
        state = states()  # before the logs are read: what is final by then has written all that it will


def _send_new(logs: List[TaskLog], state: State, wire: Wire) -> None:
    for log in logs:
        for fields, data in log.read(state["tasks"][log.task]):
            wire.send(fields, data)


def _send_states(state: State, shown: Optional[int], request: LogsRequest, wire: Wire) -> Optional[int]:
    """The serial of the newest state that was sent."""
    if not request["states"] or state["serial"] == shown:
        return shown
    states: answers.States = {"run": state["run"], "state": state, "coordination": None}
    wire.send(dict(states, type="states"))
    return state["serial"]


def _merged(logs: List[TaskLog], state: State) -> Iterator[LogFrame]:
    """The output of all tasks, by time; of each task only one piece at a time is in memory."""
    reading = [log.read(state["tasks"][log.task]) for log in logs]
    return heapq.merge(*reading, key=lambda frame: frame[0]["time"])


def _selection(run_dir: str, request: LogsRequest, wire: Wire) -> Selection:
    def check() -> None:
        if wire.is_gone():
            raise Gone

    secrets = read_record(os.path.join(run_dir, "secrets.json"), Variables) or {}
    return Selection(request, Masks(secrets.values()), check)
