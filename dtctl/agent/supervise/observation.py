"""What can be seen of a running attempt: that it is ready, how far it has come, that it hangs."""

from __future__ import annotations

import os

from ..host import ports, processes
from ..run.hangs import LEAST_FIRST_S, Signs, Watchdog, is_done, trains_alone
from ..vitals.usage import Usage
from .context import CheckpointSigns, TaskContext
from .progress import LogProgress, Rate, complaint_after

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.reasons import Fact
    from ..records.run_state import Entry
    from ..records.spec import TaskSpec
    from .attempt import Attempt


LOOK_S = 1.0
READY_LOOK_S = 0.5
LONGEST_LINE = 200
"""Characters of the line that a step was read from."""
USAGE_S = 5.0
BUSY = 0.1
"""Processors. A task that falls below, or is above again, does something else."""


class Observation:
    """Observes one started attempt and writes what it finds into `entry`, the task's part of state.json."""

    def __init__(self, context: TaskContext, task: TaskSpec, entry: Entry, attempt: Attempt, now: float) -> None:
        self._context = context
        self._id = task["id"]
        self._entry = entry
        self._trainer = attempt.trainer
        self._usage = Usage(attempt.trainer["pid"]) if attempt.trainer is not None else None
        self._next_usage = 0.0
        self._spoke = False
        """Since the last sample, and not only of others."""
        member = context.members[self._id]
        self._watchdog = Watchdog(entry, member, context.spec["recovery"], now)
        alone = trains_alone(member, context.spec["strategy"])
        self._checkpoints = CheckpointSigns(()) if alone else context.checkpoints
        self._saves: Optional[int] = None
        self._port = task["port"] if task["ready"] == "listening" else None
        self._key = attempt.key
        self._next_ready_look = 0.0
        self._log = LogProgress(os.path.join(attempt.directory, "log"), entry["progress"] is not None)
        self._rate = Rate()
        self._next_look = 0.0
        self._began: Optional[float] = None
        self._published: object = None

    def sees_ready(self, now: float) -> bool:
        """True when the task has just become ready: what trains is ready, even if it does not listen."""
        self._began = now if self._began is None else self._began
        if self._entry["ready"] or not (self._entry["step"] is not None or self._is_ready(now)):
            return False
        note_ready(self._entry, now - self._began)
        return True

    def _is_ready(self, now: float) -> bool:
        """Looks at most every half second, and at processes only when something listens on the task's port."""
        if self._port is None:
            return True
        if now < self._next_ready_look:
            return False
        self._next_ready_look = now + READY_LOOK_S
        inodes = ports.listening(self._port)
        if not inodes:
            return False
        if self._trainer is not None and ports.holds(str(self._trainer["pid"]), inodes):
            return True
        tree = processes.tree(self._trainer, [self._key])
        return any(ports.holds(str(process.pid), inodes) for process in tree)

    def sees_progress(self, now: float, wall: float) -> Signs:
        """What the log shows now."""
        grew = self._log.update()
        stepped = self._log.step is not None and self._log.step != self._entry["step"]
        if grew:
            self._entry["progress"] = wall
        self._entry["loss"] = self._log.loss
        if stepped and self._log.step is not None:
            rate = self._rate.update(now, self._log.step)
            self._entry.update({"step": self._log.step, "step_time": wall, "rate": rate})
            self._entry["step_line"] = self._shown(self._log.step_line)
        self._entry["complaint"] = complaint_after(
            None if stepped else self._entry["complaint"], self._context.masks.hide(self._log.complaint), wall
        )
        return Signs(self._entry["ready"], grew=grew, stepped=stepped)

    def _shown(self, line: bytes) -> str:
        return " ".join(self._context.masks.hide(line).decode("utf-8", "replace").split())[:LONGEST_LINE]

    def update(self, now: float, wall: float) -> Optional[Fact]:
        """Once a second: why the task is to be taken for hung, or None."""
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_S
        signs = self.sees_progress(now, wall)
        self._spoke = self._spoke or (signs.grew and not self._log.complaint)
        self._sample(now, wall)
        trainer = processes.find(self._trainer) if self._trainer is not None else None
        signs.frozen = trainer is not None and trainer.frozen
        signs.excused = is_done(self._entry["step"], self._context.spec["target_step"]) or self._context.recovering
        signs.saved = self._watchdog.is_quiet(now) and self._is_saving(now)
        return self._watchdog.update(now, signs, self._context.first_steps.get(self._id, 0.0))

    def _sample(self, now: float, wall: float) -> None:
        """How busy it is: what changes by little is no news, and is published with the next."""
        if self._usage is None or now < self._next_usage:
            return
        self._next_usage = now + USAGE_S
        self._usage.sample(now)
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
