"""The logs of one task: its attempts, one after the other."""

from __future__ import annotations

import os
import re
from functools import partial

from ..host import paths
from ..host.errors import Refused
from ..host.paths import attempt_directory, task_directory
from ..records.run_state import Ending
from .reader import AttemptLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator, List, Optional, Tuple

    from ..records.requests import LogsRequest
    from ..records.run_state import Entry
    from .reader import LogFrame
    from .selection import Selection

_ATTEMPT = re.compile(r"attempt-([0-9]{1,9})\Z")


class TaskLog:
    """`entry` is what state.json tells of the task, here and in `read`."""

    def __init__(
        self, run_dir: str, task: str, request: LogsRequest, selection: Selection, entry: Optional[Entry]
    ) -> None:
        self.task = task
        self.ended = False
        """Nothing more will come."""
        self._run_dir = run_dir
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
            self._resume(*resumed)
        else:
            self._begin(request)

    def has_grown(self) -> bool:
        """Whether the log that is read has another length than at the last look."""
        return self._log is not None and self._log.has_grown()

    def read(self, final: bool, entry: Optional[Entry]) -> Iterator[LogFrame]:
        """Frames with what is new in the current attempt and in those that have begun since."""
        self._entry = entry
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

    def _resume(self, attempt: int, offset: int) -> None:
        if attempt in self._attempts():
            self._attempt, self._log = attempt, self._open(attempt, offset)

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
            found += self._log.begin(self._is_over(attempt), lines - found)
            if found >= lines:
                return

    def _wanted(self, request: LogsRequest) -> List[int]:
        attempts = self._attempts()
        if self._only:
            return [self._named(request, attempts)]
        since = self._selection.since
        if since is not None:
            return [attempt for attempt in attempts if self._written_since(attempt, since)] or attempts[-1:]
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
            directory, self.task, attempt, self._selection, offset, partial(self._has_ended_badly, attempt)
        )

    def _is_over(self, attempt: int) -> bool:
        return attempt != self._attempts()[-1] or self._has_ended(attempt)

    def _has_ended(self, attempt: int) -> bool:
        return os.path.exists(self._path(attempt, "exit.json"))

    def _has_ended_badly(self, attempt: int) -> bool:
        """By itself, and not with 0."""
        past = self._entry["history"] if self._entry is not None else []
        if any(one["attempt"] == attempt and one["asked"] for one in past):
            return False
        try:
            ending = paths.read_record(self._path(attempt, "exit.json"), Ending)
        except (paths.Damaged, OSError):
            return False
        return ending is not None and ending["code"] != 0

    def _written_since(self, attempt: int, since: float) -> bool:
        try:
            return os.lstat(self._path(attempt, "log")).st_mtime >= since
        except FileNotFoundError:
            return False

    def _begun_until(self, attempt: int, until: float) -> bool:
        try:
            return os.lstat(self._path(attempt, "start.json")).st_mtime <= until
        except FileNotFoundError:
            return True

    def _path(self, attempt: int, name: str) -> str:
        return os.path.join(attempt_directory(self._run_dir, self.task, attempt), name)

    def _attempts(self) -> List[int]:
        """Numbers of the attempts that are meant and have begun, in order; read again only when that has changed."""
        try:
            found = os.stat(self._directory)
            look = (found.st_mtime_ns, found.st_nlink)
            if look != self._listed[0]:
                matches = map(_ATTEMPT.match, os.listdir(self._directory))
                numbers = sorted(int(match.group(1)) for match in matches if match)
                until = self._selection.until
                self._listed = look, [one for one in numbers if until is None or self._begun_until(one, until)]
        except FileNotFoundError:
            return []
        return self._listed[1]
