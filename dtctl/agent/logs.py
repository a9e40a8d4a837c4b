"""Answers `logs`: what tasks have printed, and go on to print (docs/agent.md, "logs")."""

from __future__ import annotations

import os
import re
import time

from .errors import Refused
from .log_reader import AttemptLog, Selection
from .masks import Masks
from .paths import attempt_directory, read_json, task_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

    from .log_reader import LogFrame
    from .wire import Wire

    States = Callable[[], Optional[Dict[str, Any]]]

POLL_S = 0.2
_FINAL = ("succeeded", "failed", "stopped")
_ATTEMPT = re.compile(r"attempt-([0-9]{1,9})\Z")


def serve(run_dir: str, request: Dict[str, Any], wire: Wire, states: States, gone: Callable[[], bool]) -> None:
    """Sends `log` frames, and `states` frames if asked to; returns when `result` is due, or nobody listens.

    `states` gives state.json as it is now (null before there is one), `gone` whether the controller has gone.
    """
    state = _now(states)
    tasks = _tasks(request, state)
    selection = _selection(run_dir, request)
    logs = [TaskLog(run_dir, task, request, selection) for task in tasks]
    shown_serial = None
    while True:
        if request.get("states") and state is not None and state.get("serial") != shown_serial:
            shown_serial = state.get("serial")
            wire.send({"type": "states", "run": state.get("run"), "state": state})
        for log in logs:
            for fields, data in log.read(_is_final(state, log.task)):
                wire.send(fields, data)
        if not request.get("follow") or all(log.ended for log in logs) or gone():
            return
        time.sleep(POLL_S)
        state = _now(states)  # before the logs are read: what is final by then has written all that it will


class TaskLog:
    """The attempts of one task, one after the other."""

    def __init__(self, run_dir: str, task: str, request: Dict[str, Any], selection: Selection) -> None:
        self.task = task
        self.ended = False
        """Nothing more will come."""
        self._run_dir = run_dir
        self._selection = selection
        self._directory = task_directory(run_dir, task)
        self._listed: Tuple[Any, List[int]] = (None, [])
        self._only = bool(request.get("previous")) or request.get("attempt") is not None
        self._attempt, offset = self._first(request)
        self._log = self._open(offset) if self._attempt else None

    def read(self, final: bool) -> Iterator[LogFrame]:
        """Frames of what is new in the attempt at hand and in those that have begun since."""
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

    def _first(self, request: Dict[str, Any]) -> Tuple[int, Optional[int]]:
        """The attempt to begin with (0: there is none yet), and the offset when it is known already."""
        attempts = self._attempts()
        resumed = (request.get("resume") or {}).get(self.task)
        if resumed is not None:
            attempt, offset = resumed
            return (attempt, offset) if attempt in attempts else (0, 0)
        if self._only:
            wanted = request.get("attempt")
            if wanted is None:
                wanted = attempts[-2] if len(attempts) > 1 else 0
            if wanted not in attempts:
                what = f"attempt {request['attempt']}" if request.get("attempt") is not None else "previous attempt"
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


def _selection(run_dir: str, request: Dict[str, Any]) -> Selection:
    grep = request.get("grep")
    try:
        pattern = re.compile(grep) if grep is not None else None
    except re.error as error:
        raise Refused("bad_request", f"{grep!r} is not a regular expression", detail=str(error)) from error
    secrets = read_json(os.path.join(run_dir, "secrets.json")) or {}
    return Selection(request.get("lines"), request.get("since"), pattern, Masks(secrets.values()))


def _now(states: States) -> Optional[Dict[str, Any]]:
    try:
        return states()
    except FileNotFoundError:
        raise Refused("no_run", "the run has been removed from this host") from None


def _tasks(request: Dict[str, Any], state: Optional[Dict[str, Any]]) -> List[str]:
    known = list(state["tasks"]) if state is not None else []
    if request.get("tasks") is None:
        return known
    for task in request["tasks"]:
        if state is not None and task not in known:
            raise Refused("bad_request", f"{task} does not run on this host", hint=f"tasks here: {', '.join(known)}")
    return list(request["tasks"])


def _is_final(state: Optional[Dict[str, Any]], task: str) -> bool:
    return state is not None and state["tasks"].get(task, {}).get("state") in _FINAL
