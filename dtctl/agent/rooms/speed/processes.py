"""The use of processors and disks by the processes of each task, thread by thread."""

from __future__ import annotations

import os

from ...host import processes
from ...vitals.usage import Quota

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Tuple

    from ...records.run_state import Entry, State
    from .records import TaskUse

    Thread = Tuple[int, int]

MOST_THREADS = 20_000


class Uses:
    """Samples all tasks of this host."""

    def __init__(self) -> None:
        self._tasks: Dict[str, _Use] = {}

    def sample(self, now: float, state: State, pids: Mapping[str, List[int]]) -> Dict[str, TaskUse]:
        """What each task has used since the last sample. `now`: of the monotonic clock."""
        trainers = {task: trainer_of(state["tasks"][task]) for task in pids}
        before = self._tasks
        self._tasks = {}
        found: Dict[str, TaskUse] = {}
        for task, own in pids.items():
            trainer = trainers[task]
            if trainer is None:
                continue
            use = before.get(task)
            if use is None or use.trainer != trainer:
                use = _Use(trainer, now)
            self._tasks[task] = use
            entry = state["tasks"][task]
            found[task] = use.sample(now, own, entry["step"], entry["rate"])
        return found


def trainer_of(entry: Entry) -> Optional[Tuple[int, int]]:
    """The pid and the start of a task's trainer; None without any."""
    pid, start = entry["pid"], entry["start_time"]
    return (pid, start) if pid is not None and start is not None else None


def processes_of(trainers: Mapping[int, str]) -> Dict[str, List[int]]:
    """The processes in the session of each trainer, by its task. `trainers`: pid -> task."""
    found: Dict[str, List[int]] = {task: [] for task in trainers.values()}
    for name in os.listdir("/proc"):
        if name.isdigit():
            pid = int(name)
            try:
                task = trainers.get(os.getsid(pid))
            except OSError:
                continue  # it has ended
            if task is not None:
                found[task].append(pid)
    return found


class _Use:
    """One attempt. Its counters were 0 when it began, which the first sample after an agent's start does not know."""

    def __init__(self, trainer: Tuple[int, int], now: float) -> None:
        self.trainer = trainer
        self._quota = Quota(trainer[0])
        self._since = now
        self._ticks: Optional[Dict[Tuple[int, int], int]] = None
        self._threads: Dict[Thread, Tuple[int, int]] = {}
        self._moved: Dict[int, Tuple[int, int, int]] = {}

    def sample(self, now: float, pids: List[int], step: Optional[int], rate: Optional[float]) -> TaskUse:
        seconds, is_first = max(0.0, now - self._since), self._ticks is None
        ticks, moved = {}, {}
        for pid in pids:
            stat = processes.proc_text(pid, "stat")
            process = processes.Process(pid, stat.encode()) if stat else None
            if process is not None:
                ticks[pid, process.start_time] = process.ticks
                moved[pid] = (*_disk(pid), _major_faults(stat))
        threads = _threads_of(pids)
        use: TaskUse = {
            "seconds": round(min(seconds, 1e9), 3),
            "cpu_s": 0.0,
            "thread_s": None,
            "thread": "",
            "threads": len(threads),
            "waits_s": None,
            "throttled_s": None,
            "read_bytes": 0,
            "written_bytes": 0,
            "faults": 0,
            "gpu_s": None,
            "saving_s": None,
            "step": step,
            "rate": rate,
        }
        throttled = self._quota.sample()
        if not is_first:
            used = sum(max(0, count - (self._ticks or {}).get(key, 0)) for key, count in ticks.items())
            use["cpu_s"] = round(used / processes.TICKS_A_SECOND, 3)
            use["throttled_s"] = round(throttled * seconds, 3) if throttled is not None else None
            self._add_threads(use, threads)
            for pid, counts in moved.items():
                read, written, faults = (max(0, own - old) for own, old in zip(counts, self._moved.get(pid, (0, 0, 0))))
                use["read_bytes"] += read
                use["written_bytes"] += written
                use["faults"] += faults
        self._since, self._ticks, self._threads, self._moved = now, ticks, threads, moved
        return use

    def _add_threads(self, use: TaskUse, threads: Dict[Thread, Tuple[int, int]]) -> None:
        """The busiest thread, and how long all of them waited for a processor."""
        if not threads:
            return
        waited, most, busiest = 0, -1, (0, 0)
        for key, (ran, waits) in threads.items():
            ran_before, waits_before = self._threads.get(key, (0, 0))
            waited += max(0, waits - waits_before)
            if ran - ran_before > most:
                most, busiest = ran - ran_before, key
        use["thread_s"] = round(max(0, most) / 1e9, 3)
        use["waits_s"] = round(min(waited / 1e9, 1e9), 3)
        use["thread"] = processes.proc_text(busiest[0], "task/%d/comm" % busiest[1]).strip()[:100]


def _threads_of(pids: List[int]) -> Dict[Thread, Tuple[int, int]]:
    """What each thread ran, and waited for a processor, in ns; empty where the kernel does not say.

    scheduler/sched-stats.rst: /proc/PID/schedstat has both, and the number of time slices.
    """
    found: Dict[Thread, Tuple[int, int]] = {}
    for pid in pids:
        directory = "/proc/%d/task/" % pid
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names[: MOST_THREADS - len(found)]:
            try:
                descriptor = os.open(directory + name + "/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                ran, waits, _ = os.read(descriptor, 100).split()
                found[pid, int(name)] = int(ran), int(waits)
            except (OSError, ValueError):
                continue
            finally:
                os.close(descriptor)
    return found


def _disk(pid: int) -> Tuple[int, int]:
    """Bytes that a process has read from disks, and written to them; 0 where the kernel does not count them."""
    lines = dict(line.partition(": ")[::2] for line in processes.proc_text(pid, "io").splitlines())
    read, written = (lines.get(name, "") for name in ("read_bytes", "write_bytes"))
    return int(read) if read.isdigit() else 0, int(written) if written.isdigit() else 0


def _major_faults(stat: str) -> int:
    return int(stat[stat.rindex(")") + 2 :].split(None, 12)[9])
