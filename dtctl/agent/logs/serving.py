"""Answers `logs`: what tasks have printed, and keep printing (docs/agent.md, "logs")."""

from __future__ import annotations

import os
import re
import time

from ..host.errors import Refused
from ..host.paths import attempt_directory, read_record, task_directory
from ..host.secrets import Masks
from ..records.words import Variables
from ..run.policy import FINAL
from .reader import AttemptLog, Selection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, List, Optional, Pattern, Tuple

    from ..protocol.wire import Wire
    from ..records import answers
    from ..records.requests import LogsRequest
    from ..records.run_state import State
    from .reader import LogFrame

    States = Callable[[], Optional[State]]

POLL_S = 0.2
_ATTEMPT = re.compile(r"attempt-([0-9]{1,9})\Z")


def serve(run_dir: str, request: LogsRequest, wire: Wire, states: States, gone: Callable[[], bool]) -> None:
    """Sends `log` frames, and `states` frames if asked to; returns when `result` is due, or nobody listens.

    `states` gives state.json as it is now (null before there is one), `gone` whether the controller has gone.
    """
    state = _now(states)
    tasks = _tasks(request, state)
    selection = _selection(run_dir, request)
    logs = [TaskLog(run_dir, task, request, selection) for task in tasks]
    shown_serial = None
    while True:
        if request["states"] and state is not None and state["serial"] != shown_serial:
            shown_serial = state["serial"]
            told: answers.States = {"run": state["run"], "state": state, "coordination": None}
            wire.send(dict(told, type="states"))
        for log in logs:
            for fields, data in log.read(_is_final(state, log.task)):
                wire.send(fields, data)
        if not request["follow"] or all(log.ended for log in logs) or gone():
            return
        time.sleep(POLL_S)
        state = _now(states)  # before the logs are read: what is final by then has written all that it will


class TaskLog:
    """The attempts of one task, one after the other."""

    def __init__(self, run_dir: str, task: str, request: LogsRequest, selection: Selection) -> None:
        self.task = task
        self.ended = False
        """Nothing more will come."""
        self._run_dir = run_dir
        self._selection = selection
        self._directory = task_directory(run_dir, task)
        self._listed: Tuple[Any, List[int]] = (None, [])
        self._only = request["previous"] or request["attempt"] is not None
        self._attempt, offset = self._first(request)
        self._log = self._open(offset) if self._attempt else None

    def read(self, final: bool) -> Iterator[LogFrame]:
        """Frames with what is new in the current attempt and in those that have begun since."""
        while True:
            later = [number for number in self._attempts() if number > self._attempt]
            if self._log is not None:
                over = final or bool(later) or self._has_ended()
                yield from self._log.read(over)
                if not over:
                    return
                if self._only:
                    self.ended = True
                    return
            if not later:
                self.ended = final
                return
            self._attempt = later[0]
            self._log = self._open(0)

    def _first(self, request: LogsRequest) -> Tuple[int, Optional[int]]:
        """The attempt to begin with (0: there is none yet), and the offset when it is known already."""
        attempts = self._attempts()
        resumed = request["resume"].get(self.task)
        if resumed is not None:
            attempt, offset = resumed
            return (attempt, offset) if attempt in attempts else (0, 0)
        if self._only:
            wanted = request["attempt"]
            if wanted is None:
                wanted = attempts[-2] if len(attempts) > 1 else 0
            if wanted not in attempts:
                what = f"attempt {request['attempt']}" if request["attempt"] is not None else "previous attempt"
                known = ", ".join(map(str, attempts)) or "none"
                raise Refused("bad_request", f"{self.task} has no {what}", hint=f"attempts so far: {known}")
            return wanted, None
        if self._selection.since is not None:
            for attempt in attempts:
                if self._written_since(attempt, self._selection.since):
                    return attempt, None
        return (attempts[-1] if attempts else 0), None

    def _open(self, offset: Optional[int]) -> AttemptLog:
        directory = attempt_directory(self._run_dir, self.task, self._attempt)
        return AttemptLog(directory, self.task, self._attempt, self._selection, offset)

    def _has_ended(self) -> bool:
        return os.path.exists(os.path.join(attempt_directory(self._run_dir, self.task, self._attempt), "exit.json"))

    def _written_since(self, attempt: int, since: float) -> bool:
        try:
            return os.lstat(os.path.join(attempt_directory(self._run_dir, self.task, attempt), "log")).st_mtime >= since
        except FileNotFoundError:
            return False

    def _attempts(self) -> List[int]:
        """Numbers of the attempts that have begun, in order; the directory is only read when it has changed."""
        try:
            found = os.stat(self._directory)
            look = (found.st_mtime_ns, found.st_nlink)
            if look != self._listed[0]:
                matches = map(_ATTEMPT.match, os.listdir(self._directory))
                self._listed = look, sorted(int(match.group(1)) for match in matches if match)
        except FileNotFoundError:
            return []
        return self._listed[1]


def _selection(run_dir: str, request: LogsRequest) -> Selection:
    pattern = _pattern(request["grep"]) if request["grep"] is not None else None
    secrets = read_record(os.path.join(run_dir, "secrets.json"), Variables) or {}
    return Selection(request["lines"], request["since"], pattern, Masks(secrets.values()))


def _pattern(grep: str) -> Pattern[str]:
    try:
        return re.compile(grep)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused("bad_request", f"{grep[:200]!r} is not a regular expression", detail=str(error)) from error


def _now(states: States) -> Optional[State]:
    try:
        return states()
    except FileNotFoundError:
        raise Refused("no_run", "the run has been removed from this host") from None


def _tasks(request: LogsRequest, state: Optional[State]) -> List[str]:
    known = list(state["tasks"]) if state is not None else []
    if request["tasks"] is None:
        return known
    for task in request["tasks"]:
        if state is not None and task not in known:
            raise Refused("bad_request", f"{task} does not run on this host", hint=f"tasks here: {', '.join(known)}")
    return list(request["tasks"])


def _is_final(state: Optional[State], task: str) -> bool:
    entry = state["tasks"].get(task) if state is not None else None
    return entry is not None and entry["state"] in FINAL
