"""The use of resources, by /proc: by a trainer with its child processes, by other processes, and of GPUs."""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import machine, processes
from ..records.kinds import InvalidValue, checked, made
from ..records.values import Name, TaskName
from ..records.vitals import Busy, GpuUser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container, Dict, Iterator, List, Optional, Tuple


IDLE_CPU = 0.02
IDLE_BYTES_A_SECOND = 16 * 1024
"""The rate below which heartbeats and polls of waiting programs stay."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MOST_PROCESSES = 500


class Usage:
    """The use of one attempt. `cpu`: processors kept busy between the last two samples; None before the second.

    `works`: whether between them it has used a processor, or waited for one or for a disk, has read or written, or its
    host has received data, as a trainer that loads its data from elsewhere may do little else. `acts`: the same, but
    whatever its host receives, which may be for other tasks.
    """

    def __init__(self, trainer: int) -> None:
        self.cpu: Optional[float] = None
        self.works: Optional[bool] = None
        self.acts: Optional[bool] = None
        self.throttled: Optional[float] = None
        """The share of the time in which its control group had used up its quota; None: no limit."""
        self._quota = Quota(trainer)
        self.memory_bytes: Optional[int] = None
        """Resident; what processes share counts for each of them."""
        self._trainer = trainer
        self._looked: Optional[float] = None
        self._ticks: Dict[Tuple[int, int], int] = {}
        self._moved = self._received = 0

    def sample(self, now: float) -> None:
        """Takes a sample, at a time of the monotonic clock. Nothing is known about a trainer that has ended."""
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
        received = _received(self._trainer)
        used = sum(count - self._ticks.get(key, 0) for key, count in ticks.items())
        if self._looked is not None and now > self._looked:
            passed_s = now - self._looked
            self.cpu = float("%.3g" % (max(0, used) / processes.TICKS_A_SECOND / passed_s)) if ticks else None
            most = IDLE_BYTES_A_SECOND * passed_s
            own, whole = moved - self._moved, moved + received - self._moved - self._received
            busy = None if self.cpu is None else queues or self.cpu >= IDLE_CPU
            self.acts = None if busy is None else busy or abs(own) > most
            self.works = None if busy is None else busy or abs(whole) > most
        self.memory_bytes = memory_bytes if ticks else None
        self.throttled = self._quota.sample() if ticks else None
        self._looked, self._ticks, self._moved, self._received = now, ticks, moved, received


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
    """The processor quota of one process. A limit may be that of its group, or of any group above."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before: Dict[str, Tuple[int, int]] = {}

    def sample(self) -> Optional[float]:
        """The share of periods since the last sample in which it was throttled; None: no limit."""
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


LEAST_CPU = 0.5
MOST_BUSY = 5


class Others:
    """The load of other processes; created at the first of two samples of the process table."""

    def __init__(self, now: float) -> None:
        self._looked = now
        self._ticks = _ticks()

    def busy(self, now: float, own: Container[int]) -> List[Busy]:
        """Processes outside `own` that have kept half a processor or more busy since; the busiest first."""
        span = max(0.001, now - self._looked) * processes.TICKS_A_SECOND
        used = {
            key[0]: (ticks - self._ticks[key]) / span
            for key, ticks in _ticks().items()
            if key in self._ticks and key[0] not in own
        }
        found = sorted((pid for pid, cpu in used.items() if cpu >= LEAST_CPU), key=lambda pid: -used[pid])
        return [
            {
                "pid": pid,
                "name": processes.proc_text(pid, "comm").strip()[:100],
                "user": _user(pid),
                "cpu": round(used[pid], 2),
            }
            for pid in found[:MOST_BUSY]
        ]


def _ticks() -> Dict[Tuple[int, int], int]:
    return {(process.pid, process.start_time): process.ticks for process in processes.every().values()}


def _user(pid: int) -> str:
    try:
        return machine.name_of_user(os.stat("/proc/%d" % pid).st_uid)[:100]
    except OSError:
        return ""


def gpu_user(pid: int, used_bytes: Optional[int]) -> GpuUser:
    """A process that has memory of a GPU; as the task that it belongs to where dtctl has started it for this user."""
    user: GpuUser = made(
        GpuUser, pid=pid, name=processes.proc_text(pid, "comm").strip()[:100], user=_user(pid), used_bytes=used_bytes
    )
    owner = processes.owner(pid)
    if owner is not None:
        with suppress(InvalidValue):  # it has changed its environment
            user["run"], user["task"] = checked(Name, owner[0]), checked(TaskName, owner[1])
    return user
