"""How often the control groups of a process were out of the processor time that they may use."""

from __future__ import annotations

import os

from ..host import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple

CGROUPS = "/sys/fs/cgroup"
_MOST_LEVELS = 16


class Quota:
    """Of one process. A limit may be its group's own, or that of any group above."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: Dict[str, Tuple[int, int]] = {}

    def look(self) -> Optional[float]:
        """In which share of the periods since the last look it was held back; None where nothing limits it."""
        shares: List[float] = []
        found = dict(_counts(self._pid))
        for group, (periods, throttled) in found.items():
            before = self._before.get(group)
            if before is not None and periods > before[0]:
                shares.append(min(1.0, max(0.0, (throttled - before[1]) / (periods - before[0]))))
        self._before = found
        return round(max(shares), 3) if shares else None


def _counts(pid: int) -> Iterator[Tuple[str, Tuple[int, int]]]:
    """Periods, and those in which it was throttled, of each group with a limit."""
    for group in _groups(pid):
        # Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst: nr_periods N, nr_throttled N
        words = [line.split() for line in _text(os.path.join(group, "cpu.stat")).splitlines()]
        told = {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdigit()}
        if told.get("nr_periods"):
            yield group, (told["nr_periods"], told.get("nr_throttled", 0))


def _groups(pid: int) -> Iterator[str]:
    """Directories of its group that counts processors, and of those above, less the root."""
    for line in processes.proc_text(pid, "cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if (controllers and "cpu" not in controllers.split(",")) or ".." in path:
            continue
        roots = [os.path.join(CGROUPS, controllers)] if controllers else [CGROUPS, os.path.join(CGROUPS, "unified")]
        parts = [part for part in path.split("/") if part][:_MOST_LEVELS]
        for root in roots:
            for depth in range(len(parts), 0, -1):
                yield os.path.join(root, *parts[:depth])


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
