"""Observes a running attempt: whether it is ready, its progress, and whether it hangs.

What the growth of its log shows: that the trainer lives, its step and loss, how fast it trains, what it waits for.
"""

from __future__ import annotations

import os
import re
from collections import deque
from contextlib import suppress

from ..host import files, ports, processes
from ..records.values import MOST_REASON
from ..run.hangs import LEAST_FIRST_S, Signs, Watchdog, is_done, trains_alone
from ..vitals.usage import Usage
from . import positions, step_reader
from .context import CheckpointSigns, TaskContext
from .step_reader import StepReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, Optional, Tuple

    from ..records.run_state import Entry, Hang, Position
    from ..records.spec import TaskSpec
    from ..records.vitals import Complaint
    from .attempt import Attempt

LOOK_S = 1.0
READY_LOOK_S = 0.5
FIRST_LOOK_S = 0.25
"""Between two looks for the first step of an attempt, during its first seconds: quick trainers make hundreds a second.
"""
FIRST_S = 10.0
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
        """Whether it has written anything but complaints about others since the last sample."""
        self._idle_at: Optional[float] = None
        """Since when its processes do nothing, whatever its host receives."""
        member = context.members[self._id]
        self._watchdog = Watchdog(entry, member, context.spec["recovery"], now)
        alone = trains_alone(member, context.spec["strategy"])
        self._checkpoints = CheckpointSigns(()) if alone else context.checkpoints
        self._saves: Optional[int] = None
        self._saves_steps = self._id == context.spec["lead"] and attempt.start is not None
        self._began_wall = attempt.start["started"] if attempt.start is not None else 0.0
        self._port = task["port"] if task["ready"] == "listening" else None
        self._key = attempt.key
        self._next_ready_look = 0.0
        first_epoch = entry["position"]["first_epoch"] if entry["position"] is not None else 1
        self._looked = self._began_wall
        """The wall time of the last look at the log."""
        self._before_first = self._began_wall
        """The wall time of the last look that found no step."""
        self._log = LogProgress(os.path.join(attempt.directory, "log"), entry["progress"] is not None, first_epoch)
        self._rate = Rate()
        self._next_look = 0.0
        self._new_until = now + FIRST_S
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
        """Reads the log, and what is saved if that names no step; returns the signs of progress since the last call."""
        grew = self._log.update()
        written = min(max(self._log.written, self._looked), wall)
        self._looked = wall
        if self._saves_steps and self._log.step_is_saved and self._entry["position"] is None:
            self._log.note_saved(self._checkpoints.step(now, self._began_wall), self._entry["step"])
        stepped = self._log.step is not None and self._log.step != self._entry["step"]
        if grew:
            self._entry["progress"] = wall
        self._entry["loss"] = self._log.loss
        if self._log.position is not None or stepped:
            self._entry.update({"position": self._log.position, "steps": self._log.steps})
        if self._log.step is None and self._log.rate is not None:
            self._entry["rate"] = self._log.rate
        if stepped and self._log.step is not None:
            rate = self._rate.update(now - (wall - written), self._log.step)
            rate = self._log.rate if self._log.step_is_saved and self._log.rate is not None else rate
            before = self._entry["step_time"] or self._began_wall
            self._entry["step_gap_s"] = max(0.0, round(written - before, 1)) if before else 0.0
            self._note_first(self._log.step, written)
            self._entry.update({"step": self._log.step, "step_time": written, "rate": rate})
            self._entry["step_line"] = self._shown(self._log.step_line)
        self._entry["complaint"] = complaint_after(
            None if stepped else self._entry["complaint"], self._context.masks.hide(self._log.complaint), wall
        )
        if not stepped:
            self._note_no_step(wall)
        saved = stepped and self._log.step_is_saved  # the next save may take longer
        return Signs(self._entry["ready"], grew=grew, stepped=stepped and not saved, saved=saved)

    def sees_end(self, now: float, wall: float) -> None:
        """The same when the attempt has ended: nothing follows."""
        self.sees_progress(now, wall)
        self._settle_first()

    def _note_first(self, step: int, written: float) -> None:
        """Notes when the first step of the attempt was made: of several that one look finds, by the rate after them."""
        entry = self._entry
        first, seen, seen_at = entry["first_step"], entry["step"], entry["step_time"]
        if first is None:
            begun = entry["step"] is not None  # before this supervisor
            entry["first_step"] = first = step if begun or self._log.first is None else min(self._log.first, step)
            entry["first_step_time"] = written if first == step else None
        elif entry["first_step_time"] is None and seen is not None and seen_at is not None:
            if step > seen and written > seen_at:
                passed_s = (seen - first) * (written - seen_at) / (step - seen)
                entry["first_step_time"] = min(max(seen_at - passed_s, self._before_first), seen_at)
            else:
                self._settle_first()

    def _note_no_step(self, wall: float) -> None:
        """Ends the wait for a second look at the steps, where none follows soon."""
        if self._entry["step"] is None:
            self._before_first = wall
        elif self._entry["first_step_time"] is None and wall - (self._entry["step_time"] or wall) > SECOND_S:
            self._settle_first()

    def _settle_first(self) -> None:
        """Takes the steps that one look has found as evenly made since the look before."""
        entry = self._entry
        first, step, written = entry["first_step"], entry["step"], entry["step_time"]
        if first is None or step is None or written is None or entry["first_step_time"] is not None:
            return
        since = min(self._before_first or written, written)
        entry["first_step_time"] = since + (written - since) / (max(0, step - first) + 1)

    def _shown(self, line: bytes) -> str:
        return " ".join(self._context.masks.hide(line).decode("utf-8", "replace").split())[:LONGEST_LINE]

    def update(self, now: float, wall: float) -> Optional[Hang]:
        """The hang of the task, or None; looked for once a second."""
        if now < self._next_look:
            return None
        is_new = self._entry["step"] is None and now < self._new_until
        self._next_look = now + (FIRST_LOOK_S if is_new else LOOK_S)
        signs = self.sees_progress(now, wall)
        self._spoke = self._spoke or (signs.grew and not self._log.complaint)
        self._sample(now, wall)
        trainer = processes.find(self._trainer) if self._trainer is not None else None
        signs.frozen = trainer is not None and trainer.frozen
        signs.excused = is_done(self._entry["step"], self._context.spec["target_step"]) or self._context.recovering
        signs.saved = (self._watchdog.is_quiet(now) and self._is_saving(now)) or signs.saved
        signs.idle_s = now - self._idle_at if self._idle_at is not None else 0.0
        first_s, behind_s = self._context.first_steps.get(self._id, 0.0), self._context.left_behind.get(self._id)
        return self._watchdog.update(now, signs, first_s, behind_s)

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
        if self._spoke or self._usage.acts is not False:
            self._idle_at = self._entry["still_since"] = None
        elif self._idle_at is None:
            self._idle_at, self._entry["still_since"] = now, wall
        self._spoke = False

    def has_news(self) -> bool:
        """True if the findings have changed since the last call."""
        entry, before = self._entry, self._published
        complaint = entry["complaint"]["text"] if entry["complaint"] is not None else None
        busy = None if entry["cpu"] is None else entry["cpu"] >= BUSY
        idle = (entry["idle_since"] is not None, entry["still_since"] is not None)
        self._published = (entry["progress"], entry["step"], entry["longest_gap_s"], complaint, busy, idle)
        return before != self._published

    def _is_saving(self, now: float) -> bool:
        saves, before = self._checkpoints.changes(now), self._saves
        self._saves = saves
        return before is not None and saves > before


def note_ready(entry: Entry, took_s: float) -> None:
    """Marks the task as ready, `took_s` after its start."""
    entry.update({"ready": True, "ready_s": max(entry["ready_s"], round(took_s, 1), LEAST_FIRST_S)})


def note_work(entry: Entry, works: Optional[bool], wall: float) -> None:
    """Records whether the task has worked since the last call. `works` None: unknown."""
    if works:
        entry["idle_since"] = None
    elif works is not None and entry["idle_since"] is None:
        entry["idle_since"] = wall


MOST_BYTES = 16 * 1024
"""The most bytes read at one look; the end of what is new is read, where the newest step is."""

MOST_LINES = 500
"""The most lines that are searched for the first step."""

SECOND_S = 2.0
"""How long the time of the first of several steps waits for the rate of those after them."""

HEAD_BYTES = 256 * 1024
"""The bytes at the beginning of a log that are searched for the header of a table when its reader has restarted."""

RATE_OVER_S = 60.0
"""How far back a rate looks."""

MOST_RATE = 1e12
"""The highest rate that an entry can hold."""


class Rate:
    """Steps a second over the last minute, or between the last two that were reported where they are further apart."""

    def __init__(self) -> None:
        self._seen: Deque[Tuple[float, int]] = deque(maxlen=200)

    def update(self, now: float, step: int) -> Optional[float]:
        """The rate after a step reported at this monotonic time; None before the second step, and if steps decrease.

        It is also None if it is higher than an entry can hold.
        """
        if self._seen and step <= self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_OVER_S:
            self._seen.popleft()
        first_at, first = self._seen[0]
        rate = float("%.3g" % ((step - first) / (now - first_at))) if now > first_at else None
        return rate if rate is not None and rate <= MOST_RATE else None


class LogProgress:
    """Progress of one attempt by its log; only new parts are read."""

    def __init__(self, path: str, adopted: bool, first_epoch: int = 1) -> None:
        """`adopted`: an earlier supervisor has seen what is there already. `first_epoch`: as earlier attempts say."""
        self.step: Optional[int] = None
        self.first: Optional[int] = None
        """The first step that was found, if the log has named steps from its beginning on."""
        self.written = 0.0
        """When the log was last written to, in epoch seconds; 0: unknown."""
        self.steps: Optional[int] = None
        """The steps of the whole training, where the log names them."""
        self.position: Optional[Position] = None
        """The last position within an epoch: `step` is then counted over the epochs."""
        self.rate: Optional[float] = None
        """The rate that the program itself reports."""
        self.step_line = b""
        """The line in which the step was found."""
        self.loss: Optional[str] = None
        self.complaint = b""
        """A complaint in the output since the last update that no step follows."""
        self._path = path
        self._size = 0
        self._read_to = self._read_from = 0
        self._reader = StepReader()
        self._counter = positions.Counter(first_epoch)
        self._names_steps = False
        if adopted:
            with suppress(OSError):
                self._reader.read(self._bytes(0, HEAD_BYTES))  # the header of a table, if it has one
            self.update()

    def update(self) -> bool:
        """True when the log has changed since the last look; `step`, `loss` and `complaint` are then up to date."""
        self.complaint = b""
        try:
            status = files.stat_regular(self._path)
            size, self.written = status.st_size, max(0.0, status.st_mtime)
        except OSError:
            return False  # not begun, or no log
        if size == self._size:
            return False
        if size < self._read_to:
            self._read_to = 0  # it was truncated
        self._size = size
        with suppress(OSError):  # as of a stale file handle: it has grown all the same
            self._read(size)
        return True

    def _read(self, size: int) -> None:
        self._read_from = self._read_to
        start = max(self._read_to, size - MOST_BYTES)
        data = self._bytes(start, size - start)
        whole = max(data.rfind(end) for end in (b"\n", b"\r", b"\b")) + 1  # an unfinished number would be another one
        self._read_to = start + whole
        found = self._reader.read(data[:whole])
        line, after = last_complaint(data[:whole])
        self.complaint = line if line and not self._goes_on(after) else b""
        if found.loss is not None:
            self.loss = found.loss
        self.rate = found.rate if found.rate is not None else self.rate
        if found.step is not None:
            if self.step is None:
                skipped = start > self._read_from
                self.first = self._first_of(self._bytes(self._read_from, MOST_BYTES) if skipped else data[:whole])
            self._names_steps, self.position = True, None
            self.step, self.step_line = found.step, found.line
            self.steps = found.total if found.total is not None else self.steps
        elif found.position is not None and not self._names_steps:
            self._count(found.position, found)
        self.note_saved(found.saved)

    @staticmethod
    def _first_of(data: bytes) -> Optional[int]:
        """The first step that whole lines name."""
        reader = StepReader()
        for line in data.splitlines(keepends=True)[:MOST_LINES]:
            step = reader.read(line).step
            if step is not None:
                return step
        return None

    @property
    def step_is_saved(self) -> bool:
        """Whether the log names no step but those of checkpoints: `step` is then that of the newest one, or None."""
        return self.position is None and not self._names_steps

    def note_saved(self, saved: Optional[int], before: Optional[int] = None) -> None:
        """Notes the step of a checkpoint. `before`: the step so far, where it is not of this log."""
        if saved is not None and self.position is None and saved > max(self.step or 0, before or 0):
            self.step = saved

    def _count(self, position: positions.Reading, found: step_reader.Reading) -> None:
        if self._counter.add(position, has_loss=found.has_loss):
            counter = self._counter
            self.position, self.step, self.steps = counter.position, counter.step, counter.total
            self.step_line = found.line

    @staticmethod
    def _goes_on(after: bytes) -> bool:
        """Whether the training has gone on after a complaint."""
        found = step_reader.read(after)
        return found.step is not None or found.position is not None

    def _bytes(self, start: int, count: int) -> bytes:
        with files.opened(self._path) as opened:
            return files.read_at(opened, start, count)


MARKS = (
    b"CreateSession still waiting for response",
    b"Waiting for model to be ready",
    b"tasks to connect",
    b"Example stragglers",
    b"stopped sending heartbeats",
    b"UNAVAILABLE",
    b"Unavailable:",
    b"UnavailableError",
    b"DeadlineExceeded",
    b"failed to connect",
    b"Connection refused",
    b"Connection timed out",
    b"Connection reset by peer",
    b"Socket closed",
    b"No route to host",
    b"Name or service not known",
    b"Temporary failure in name resolution",
    b"DNS resolution failed",
    b"Address already in use",
    b"Graph handle is not found",
    b"different incarnation",
    b"No space left on device",
    b"Disk quota exceeded",
    b"Permission denied",
    b"OOM when allocating",
    b"ran out of memory",
    b"loss = NaN",
    b"Invalid loss",
)
"""Looked for one by one, which costs less than a regular expression of them all."""

_HEAD = r"(?:\d{4}-\d\d-\d\d [\d:.]+: [IWEF]|[IWEF]\d{4} [\d:.]+ +\d+) \S+:\d+\] |(?:INFO|WARNING|ERROR):\w+:"
"""The prefix of lines of glog and of logging: time and source position."""

_LONGEST = min(400, MOST_REASON)
_CURRENT_S = 3600.0


def last_complaint(data: bytes) -> Tuple[bytes, bytes]:
    """The last line of whole ones with a mark in it, and what follows it; both empty where there is none."""
    at = max(data.rfind(mark) for mark in MARKS)
    if at < 0:
        return b"", b""
    begin = max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1
    end = data.find(b"\n", at)
    end = len(data) if end < 0 else end
    return data[begin:end].strip(), data[end:]


def complaint_after(before: Optional[Complaint], line: bytes, wall: float) -> Optional[Complaint]:
    """The complaint after a new line, or none. Complaints of one kind continue, even with different numbers."""
    if not line:
        return before
    text = re.sub(_HEAD, "", " ".join(line.decode("utf-8", "replace").split())).lstrip(": ")[:_LONGEST]
    goes_on = before is not None and wall - before["last"] < _CURRENT_S and kind(before["text"]) == kind(text)
    return {"text": text, "since": before["since"] if goes_on and before is not None else wall, "last": wall}


def kind(text: str) -> Optional[bytes]:
    """The mark by which it is known."""
    data = text.encode("utf-8", "replace")
    return next((mark for mark in MARKS if mark in data), None)
