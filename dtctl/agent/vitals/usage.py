"""Processor time and memory of a trainer and of what it has started, by /proc."""

from __future__ import annotations

import os

from ..host import machine, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Tuple


IDLE_CPU = 0.02
IDLE_BYTES_A_SECOND = 16 * 1024
"""What heartbeats and polls of those who only wait for others stay below."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_PROCESSES = 500


class Usage:
    """Of one attempt. `cpu`: processors kept busy between the last two looks; None before the second.

    `works` between them: it has used a processor, or waits for one or for a disk; it has read or written; or its host
    has received something, as a trainer that loads its data from elsewhere may do little else.
    """

    def __init__(self, trainer: int) -> None:
        self.cpu: Optional[float] = None
        self.works: Optional[bool] = None
        self.throttled: Optional[float] = None
        """In which share of the time its control group had used up what it may; None: nothing limits it."""
        self._quota = Quota(trainer)
        self.memory_bytes: Optional[int] = None
        """Resident; what processes share counts for each of them."""
        self._trainer = trainer
        self._looked: Optional[float] = None
        self._ticks: Dict[Tuple[int, int], int] = {}
        self._moved = 0

    def sample(self, now: float) -> None:
        """On the monotonic clock. Of a trainer that has ended nothing is known."""
        ticks: Dict[Tuple[int, int], int] = {}
        memory_bytes = moved = 0
        queues = False
        for pid in _family(self._trainer):
            process = processes.Process.read(pid)
            if process is not None:
                ticks[pid, process.start_time] = process.ticks
                memory_bytes += process.pages * _PAGE_BYTES
                queues = queues or process.queues
                moved += _read_and_written(pid)
        moved += _received(self._trainer)
        used = sum(count - self._ticks.get(key, 0) for key, count in ticks.items())
        if self._looked is not None and now > self._looked:
            passed_s = now - self._looked
            self.cpu = float("%.3g" % (max(0, used) / processes.TICKS_A_SECOND / passed_s)) if ticks else None
            fast = abs(moved - self._moved) > IDLE_BYTES_A_SECOND * passed_s
            self.works = queues or fast or self.cpu >= IDLE_CPU if self.cpu is not None else None
        self.memory_bytes = memory_bytes if ticks else None
        self.throttled = self._quota.sample() if ticks else None
        self._looked, self._ticks, self._moved = now, ticks, moved


def _family(trainer: int) -> Iterator[int]:
    """A process and those that its first thread, and theirs, have started: cheaper than the whole table."""
    found, waiting = 0, [trainer]
    while waiting and found < _MOST_PROCESSES:
        pid = waiting.pop()
        found += 1
        yield pid
        waiting += map(int, processes.proc_text(pid, "task/%d/children" % pid).split())


def _read_and_written(pid: int) -> int:
    """Bytes of read and write, whatever they were of; 0 where the kernel does not count them."""
    answer = dict(line.partition(": ")[::2] for line in processes.proc_text(pid, "io").splitlines())
    return sum(int(answer[name]) for name in ("rchar", "wchar") if answer.get(name, "").isdigit())


def _received(pid: int) -> int:
    """Bytes that have come to the host of a process from other machines."""
    rows = (line.partition(":") for line in processes.proc_text(pid, "net/dev").splitlines())
    counts = [answer.split()[0] for name, _, answer in rows if answer and name.strip() != "lo"]
    return sum(int(count) for count in counts if count.isdigit())


CGROUPS = "/sys/fs/cgroup"
_MOST_LEVELS = 16


class Quota:
    """Of one process. A limit may be its group's own, or that of any group above."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: Dict[str, Tuple[int, int]] = {}

    def sample(self) -> Optional[float]:
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
        words = [line.split() for line in machine.text(os.path.join(group, "cpu.stat")).splitlines()]
        answer = {word[0]: int(word[1]) for word in words if len(word) == 2 and word[1].isdigit()}
        if answer.get("nr_periods"):
            yield group, (answer["nr_periods"], answer.get("nr_throttled", 0))


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
