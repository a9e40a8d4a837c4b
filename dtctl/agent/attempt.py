"""One attempt of a task, as its supervisor sees it: the files that its keeper writes, and its processes."""

from __future__ import annotations

import os

from . import paths, policy, processes
from .samples import Samples

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping, Optional

START_LIMIT_S = 10.0
"""After this long without start.json the keeper is taken to have been killed."""

EXEC_LIMIT_S = 2.0
"""After this long a live process is taken to be the trainer, though its environment cannot be read."""

LEFTOVERS_GRACE_S = 5.0
"""Between SIGTERM and SIGKILL for what a trainer that has ended left behind."""


class Attempt:
    """`now` is the monotonic clock and `wall` epoch seconds, here and below."""

    def __init__(self, directory: str, now: float) -> None:
        self.directory = directory
        self.exit: Optional[Mapping[str, Any]] = None
        """As in exit.json, once the trainer has ended."""
        self._seen_since = now
        self._start: Optional[Mapping[str, Any]] = None
        self._ladder: Optional[processes.Ladder] = None
        self._samples = Samples(directory)

    @property
    def ending(self) -> bool:
        """Something of it is being ended."""
        return self._ladder is not None

    @property
    def start(self) -> Mapping[str, Any]:
        """start.json; empty while there is none."""
        if self._start is None:
            self._start = paths.read_json(self._path("start.json"))
        return self._start or {}

    def look(self, now: float, wall: float) -> None:
        """Sees whether the trainer has ended."""
        self._samples.take(wall)
        if self.exit is None:
            self.exit = self._find_exit(now, wall)
            if self.exit is not None:
                self._samples.take(wall)

    def runs(self, now: float) -> bool:
        """True once exec has succeeded, of an attempt that has not ended."""
        start = self.start
        if self.exit is not None or processes.find(start) is None:
            return False
        return processes.bears(start["pid"], start["key"]) or now - self._seen_since > EXEC_LIMIT_S

    def end(self, grace_s: float, now: float) -> bool:
        """Asks the trainer to end, and sees to it that it does; False when there is nothing to be asked (yet)."""
        if self._ladder is None:
            if processes.find(self.start) is None:
                return False  # its keeper is about to record the start, or the exit
            self._ladder = processes.Ladder(self.start, [self.start["key"]], grace_s, now)
        self._ladder.grace_s = grace_s
        self._ladder.step(now)
        return True

    def left(self, now: float) -> List[processes.Process]:
        """What outlives SIGKILL."""
        return self._ladder.outlived(now) if self._ladder is not None else []

    def cleared(self, asked: bool, grace_s: float, now: float) -> bool:
        """Ends what a trainer that has ended left behind; True when nothing is left."""
        if not self.start.get("pid"):
            return True
        if self._ladder is None:
            leftovers_s = min(LEFTOVERS_GRACE_S, grace_s)
            self._ladder = processes.Ladder(self.start, [self.start["key"]], leftovers_s, now)
        elif asked:
            self._ladder.grace_s = grace_s
        return self._ladder.step(now)

    def _find_exit(self, now: float, wall: float) -> Optional[Mapping[str, Any]]:
        start = self.start
        if not start:
            if now - self._seen_since > START_LIMIT_S:
                self._give_up(wall)
            return self._recorded_exit()
        if start["pid"] is None:
            return policy.unknown_exit(start["started"], "its keeper was killed before the start")
        if processes.find(start) is not None:
            return None
        recorded = self._recorded_exit()
        if recorded is not None:
            return recorded
        if start["boot_id"] != processes.boot_id():
            return policy.unknown_exit(None, policy.HOST_RESTARTED)
        if processes.find(start["keeper"]) is not None:
            return None  # it is about to write, or waits for a full disk
        return self._recorded_exit() or policy.unknown_exit(wall, policy.KEEPER_KILLED)

    def _give_up(self, wall: float) -> None:
        """Sees to it that an attempt without start.json never starts: its keeper and we claim the same file."""
        claim = {"pid": None, "start_time": None, "boot_id": None, "started": wall, "key": ""}
        paths.claim_json(self._path("start.json"), claim)

    def _recorded_exit(self) -> Optional[Mapping[str, Any]]:
        return paths.read_json(self._path("exit.json"))

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)
