"""What can be seen of a running attempt: that it is ready, how far it has come, that it hangs."""

from __future__ import annotations

import os

from ..checkpoints.progress import CheckpointSigns
from ..host import ports, processes
from ..run.hangs import LEAST_FIRST_S, Signs, Watchdog, is_done
from ..vitals.usage import Usage
from .progress import LogProgress, Rate, complaint_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from ..host.secrets import Masks
    from ..records.reasons import Fact
    from ..records.run_state import Entry, Process
    from .attempt import Attempt


LOOK_S = 1.0
LONGEST_LINE = 200
"""Characters of the line that a step was read from."""
USAGE_S = 5.0
BUSY = 0.1
"""Processors. A task that falls below, or is above again, does something else."""


class Observation:
    """Observes one started attempt and writes what it finds into `entry`, the task's part of state.json."""

    def __init__(
        self,
        attempt: Attempt,
        entry: Entry,
        port: Optional[int],
        target_step: Optional[int],
        watchdog: Watchdog,
        checkpoints: CheckpointSigns,
        recovering: Callable[[], bool],
        first_step_limit: Callable[[], Optional[float]],
        masks: Masks,
    ) -> None:
        """`port` None: the task is ready as soon as it runs. `recovering`: another task was lost and is not back yet.

        `first_step_limit`: how long it may be silent before its first step, as far as that is known by now.
        """
        self._trainer = attempt.trainer
        self._masks = masks
        self._usage = Usage(attempt.trainer["pid"]) if attempt.trainer is not None else None
        self._next_usage = 0.0
        self._spoke = False
        """Since the last sample, and not only of others."""
        self._entry = entry
        self._target_step = target_step
        self._watchdog = watchdog
        self._checkpoints = checkpoints
        self._recovering = recovering
        self._first_step_limit = first_step_limit
        self._saves: Optional[int] = None
        self._readiness = Readiness(port, attempt.trainer, attempt.key)
        adopted = entry["progress"] is not None
        self._log = LogProgress(os.path.join(attempt.directory, "log"), adopted)
        self._rate = Rate()
        self._next_look = 0.0
        self._began: Optional[float] = None
        self._published: object = None

    def sees_ready(self, now: float) -> bool:
        """True when the task has just become ready: what trains is ready, whatever it listens on."""
        self._began = now if self._began is None else self._began
        if self._entry["ready"] or not (self._entry["step"] is not None or self._readiness.look(now)):
            return False
        note_ready(self._entry, now - self._began)
        return True

    def sees_progress(self, now: float, wall: float) -> Signs:
        """What the log shows now."""
        grew = self._log.look()
        stepped = self._log.step is not None and self._log.step != self._entry["step"]
        if grew:
            self._entry["progress"] = wall
        self._entry["loss"] = self._log.loss
        if stepped and self._log.step is not None:
            rate = self._rate.look(now, self._log.step)
            self._entry.update({"step": self._log.step, "step_time": wall, "rate": rate})
            self._entry["step_line"] = self._shown(self._log.step_line)
        self._entry["complaint"] = complaint_after(
            None if stepped else self._entry["complaint"], self._masks.hide(self._log.complaint), wall
        )
        return Signs(self._entry["ready"], grew=grew, stepped=stepped)

    def _shown(self, line: bytes) -> str:
        return " ".join(self._masks.hide(line).decode("utf-8", "replace").split())[:LONGEST_LINE]

    def look(self, now: float, wall: float) -> Optional[Fact]:
        """Once a second: why the task is to be taken for hung, or None."""
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_S
        signs = self.sees_progress(now, wall)
        self._spoke = self._spoke or (signs.grew and not self._log.complaint)
        self._sample(now, wall)
        trainer = processes.find(self._trainer) if self._trainer is not None else None
        signs.frozen = trainer is not None and trainer.frozen
        signs.excused = is_done(self._entry["step"], self._target_step) or self._recovering()
        signs.saved = self._watchdog.is_quiet(now) and self._is_saving(now)
        return judged(self._watchdog, now, signs, self._entry, self._first_step_limit())

    def _sample(self, now: float, wall: float) -> None:
        """How busy it is: what changes by little is no news, and is published with the next."""
        if self._usage is None or now < self._next_usage:
            return
        self._next_usage = now + USAGE_S
        self._usage.look(now)
        self._entry.update({"cpu": self._usage.cpu, "memory_bytes": self._usage.memory_bytes})
        most = max(self._entry["most_memory_bytes"], self._usage.memory_bytes or 0)
        self._entry["most_memory_bytes"] = most
        self._entry["throttled"] = self._usage.throttled
        note_work(self._entry, True if self._spoke else self._usage.works, wall)
        self._spoke = False

    def has_news(self) -> bool:
        """True if the findings have changed since the last call."""
        entry, before = self._entry, self._published
        complaint = entry["complaint"]["text"] if entry["complaint"] is not None else None
        busy = None if entry["cpu"] is None else entry["cpu"] >= BUSY
        idle = entry["idle_since"] is not None
        self._published = (entry["progress"], entry["step"], entry["longest_gap_s"], complaint, busy, idle)
        return before != self._published

    def _is_saving(self, now: float) -> bool:
        saves, before = self._checkpoints.changes(now), self._saves
        self._saves = saves
        return before is not None and saves > before


def note_ready(entry: Entry, took_s: float) -> None:
    """So long after its start."""
    entry.update({"ready": True, "ready_s": max(entry["ready_s"], round(took_s, 1), LEAST_FIRST_S)})


def note_work(entry: Entry, works: Optional[bool], wall: float) -> None:
    """What was seen since the last time. None: nothing could be seen."""
    if works:
        entry["idle_since"] = None
    elif works is not None and entry["idle_since"] is None:
        entry["idle_since"] = wall


def judged(watchdog: Watchdog, now: float, signs: Signs, entry: Entry, first_s: Optional[float]) -> Optional[Fact]:
    """The watchdog's verdict. What it has learnt is noted in `entry`, for later attempts."""
    watchdog.first_s = first_s
    verdict = watchdog.look(now, signs)
    entry["longest_gap_s"] = round(watchdog.longest_gap_s, 1)
    if not (watchdog.has_waited and entry["first_step_s"]):
        entry["first_step_s"] = max(entry["first_step_s"], round(watchdog.first_step_s, 1))
    return verdict


READY_LOOK_S = 0.5


class Readiness:
    """Readiness of one running attempt. `port` None: it is ready as soon as it runs."""

    def __init__(self, port: Optional[int], trainer: Optional[Process], key: str) -> None:
        self._port = port
        self._trainer = trainer
        self._key = key
        self._next_look = 0.0

    def look(self, now: float) -> bool:
        """Looks at most every half second, and at processes only when something listens."""
        if self._port is None:
            return True
        if now < self._next_look:
            return False
        self._next_look = now + READY_LOOK_S
        inodes = ports.listening(self._port)
        if not inodes:
            return False
        if self._trainer is not None and ports.holds(str(self._trainer["pid"]), inodes):
            return True
        tree = processes.tree(self._trainer, [self._key])
        return any(ports.holds(str(process.pid), inodes) for process in tree)
