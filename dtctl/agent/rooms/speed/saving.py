"""How long tasks stand still while they write: what a checkpoint costs that the training waits for."""

from __future__ import annotations

from ...host import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from ...records.run_state import State

LOOK_S = 1.0
LEAST_BYTES = 1e6
"""Written between two steps; less is the log, or event files."""
LONGER = 2.5
"""How many times its usual step a step takes at least that a save has held up."""
LEAST_GAP_S = 1.0
"""Steps are looked for once a second: shorter gaps are not seen."""
_USUAL = 30


class Saving:
    """Samples the steps and the writes of all tasks of this host each second."""

    def __init__(self) -> None:
        self._tasks: Dict[str, _Task] = {}
        self._next = 0.0

    def look(self, now: float, state: State) -> None:
        """Does nothing more often than each second. `now`: of the monotonic clock."""
        if now < self._next:
            return
        self._next = now + LOOK_S
        for task, entry in state["tasks"].items():
            pid, start, step, at = entry["pid"], entry["start_time"], entry["step"], entry["step_time"]
            if pid is None or start is None or step is None or at is None:
                self._tasks.pop(task, None)
                continue
            known = self._tasks.get(task)
            if known is None or known.trainer != (pid, start):
                self._tasks[task] = known = _Task((pid, start))
            known.look(step, at, written_bytes(pid))

    def taken(self, task: str) -> Optional[float]:
        """The seconds since the last call; None for a task that reports no steps."""
        known = self._tasks.get(task)
        if known is None:
            return None
        found, known.stood_s = known.stood_s, 0.0
        return round(min(found, 1e9), 3)


class _Task:
    def __init__(self, trainer: Tuple[int, int]) -> None:
        self.trainer = trainer
        self.stood_s = 0.0
        self._last: Optional[Tuple[int, float, int]] = None
        """The newest step, when it was reported, and what had been written by then."""
        self._usual: List[float] = []
        """Seconds of a step, at the last looks between which nothing was saved."""

    def look(self, step: int, at: float, written: int) -> None:
        if self._last is None or step < self._last[0]:
            self._last = step, at, written
        if step == self._last[0]:
            return
        steps, passed_s, bytes_ = step - self._last[0], at - self._last[1], written - self._last[2]
        self._last = step, at, written
        if bytes_ < LEAST_BYTES:
            self._usual = [*self._usual[1 - _USUAL :], max(0.0, passed_s) / steps]
        elif self._usual:
            usual_s = sorted(self._usual)[len(self._usual) // 2] * steps
            if passed_s >= max(LEAST_GAP_S, LONGER * usual_s):
                self.stood_s += passed_s - usual_s


def written_bytes(pid: int) -> int:
    """What a process has written to disks; 0 where the kernel does not count it, or hides it."""
    lines = dict(line.partition(": ")[::2] for line in processes.proc_text(pid, "io").splitlines())
    written = lines.get("write_bytes", "")
    return int(written) if written.isdigit() else 0
