"""Processes by /proc.

A process is identified by pid, start time and boot id, or by its DTCTL_KEY; never by its name.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from . import paths
from .secrets import hide_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

    from ..records import run_state
    from ..records.answers import Survivor

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")

KILL_LIMIT_S = 5.0
"""A process that survives SIGKILL for longer hangs in the kernel: in an unresponsive file system, or a driver."""

LOOK_S = 0.05
"""The interval at which a session that ends processes checks which are left."""

LONGEST_COMMAND = 4096
"""The most characters of a command line that are shown."""

_MOST_LISTINGS = 5
"""The most listings, as a busy machine always has new processes."""

_KERNEL_LISTS_CHILDREN = os.path.exists("/proc/thread-self/children")

_boot_id = ""


def boot_id() -> str:
    """Changes with every start of the machine."""
    global _boot_id
    if not _boot_id:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            _boot_id = file.read().strip()
    return _boot_id


class Process:
    """One entry of the process table, at the time when it was read."""

    __slots__ = ("frozen", "group", "pages", "parent", "pid", "queues", "session", "start_time", "ticks", "zombie")

    def __init__(self, pid: int, stat: bytes) -> None:
        # proc(5), /proc/PID/stat: the command's name is in parentheses and may hold anything
        fields = stat[stat.rindex(b")") + 2 :].split(None, 22)
        self.pid = pid
        self.zombie = fields[0] in (b"Z", b"X", b"x")
        self.frozen = fields[0] == b"T"  # not t, which is under a debugger
        self.queues = fields[0] in (b"R", b"D")
        """Whether it runs on a processor, or waits for one or for a disk."""
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.ticks = int(fields[11]) + int(fields[12])
        """Processor time in ticks, in the program and in the kernel."""
        self.start_time = int(fields[19])
        self.pages = int(fields[21])
        """Resident."""

    @property
    def age_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.start_time / TICKS_A_SECOND

    @classmethod
    def read(cls, pid: int) -> Optional[Process]:
        """The entry of a process; None if there is no such process."""
        stat = _read_proc(pid, "stat")
        return cls(pid, stat) if stat else None


_IN_PIECES = ("environ", "maps")
"""Files of which the kernel returns a page at a time, whatever is asked for."""


def _read_proc(pid: int, name: str) -> bytes:
    try:
        descriptor = os.open("/proc/%d/%s" % (pid, name), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""  # it has ended, or is not readable for this user
    try:
        data = chunk = os.read(descriptor, 65536)
        while len(chunk) == 65536 or (chunk and name in _IN_PIECES):
            chunk = os.read(descriptor, 65536)
            data += chunk
        return data
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def identify(pid: int) -> Optional[run_state.Process]:
    """A live process, as state files record it; None if there is none."""
    process = Process.read(pid)
    if process is None:
        return None
    return {"pid": process.pid, "start_time": process.start_time, "boot_id": boot_id()}


def myself() -> run_state.Process:
    me = identify(os.getpid())
    assert me is not None
    return me


def of_attempt(attempt: str) -> List[Process]:
    """The remaining processes of an attempt, by its directory; with a damaged start.json by its trainer's key."""
    from ..records.run_state import Start  # which the supervisor's own processes do without

    try:
        start = paths.read_record(os.path.join(attempt, "start.json"), Start)
    except paths.Damaged:
        return tree(None, [attempt])
    return tree(trainer(start), [start["key"]], keeper(start)) if start is not None and start["key"] else []


def trainer(start: run_state.Start) -> Optional[run_state.Process]:
    """The one of a start.json; None when it never ran."""
    pid, start_time, boot = start["pid"], start["start_time"], start["boot_id"]
    if pid is None or start_time is None or boot is None:
        return None
    return {"pid": pid, "start_time": start_time, "boot_id": boot}


def keeper(start: run_state.Start) -> Optional[run_state.Process]:
    """The one of a start.json, to which every orphan of its trainer comes back; None for a trainer in a container."""
    own, boot = start["keeper"], start["boot_id"]
    if own is None or boot is None or start["contained"]:
        return None
    return {"pid": own["pid"], "start_time": own["start_time"], "boot_id": boot}


def find(identity: run_state.Process) -> Optional[Process]:
    """The live process that this was written of; None when it has ended."""
    return living(identity["pid"], identity["start_time"]) if identity["boot_id"] == boot_id() else None


def living(pid: int, start_time: int) -> Optional[Process]:
    """The live process of this boot with this pid and start time; None when it has ended."""
    process = Process.read(pid)
    if process is None or process.zombie or process.start_time != start_time:
        return None
    return process


def resumed(process: Optional[Process]) -> Optional[Process]:
    """The same process, an agent or a keeper, resumed if a signal had stopped it."""
    if process is not None and process.frozen:
        send_signal([process], signal.SIGCONT)
    return process


def command(pid: int) -> str:
    """The command line as `ps` shows it, secrets masked; the name in brackets when it cannot be read."""
    text = _read_proc(pid, "cmdline").rstrip(b"\0").replace(b"\0", b" ")
    if not text:
        text = b"[%s]" % _read_proc(pid, "comm").strip()
    return hide_text(text[: 2 * LONGEST_COMMAND].decode("utf-8", "replace"))[:LONGEST_COMMAND]


def argv(pid: int, option: bytes = b"") -> List[str]:
    """The command line; empty when it cannot be read, or does not begin with this option."""
    words = _read_proc(pid, "cmdline").split(b"\0")[:-1]
    if option and words[1:2] != [option]:
        return []
    return [argument.decode("utf-8", "surrogateescape") for argument in words]


def environment(pid: int, prefix: bytes = b"") -> Dict[str, str]:
    """The variables with this prefix with which a process was started; empty if they are unreadable."""
    given = _read_proc(pid, "environ")
    if prefix not in given:
        return {}
    pairs = [pair for pair in given.split(b"\0") if pair.startswith(prefix) and b"=" in pair[1:]]
    return dict(pair.decode("utf-8", "surrogateescape").split("=", 1) for pair in pairs)


def sees_others() -> bool:
    """Whether /proc shows the processes of other users: mounted with hidepid it does not (proc(5))."""
    return bool(_read_proc(1, "comm"))


def proc_text(pid: int, name: str) -> str:
    """A file below /proc/PID; empty when it cannot be read."""
    return _read_proc(pid, name).decode("utf-8", "replace")


def every() -> Dict[int, Process]:
    """The process table, by pid."""
    found = map(Process.read, _pids())
    return {process.pid: process for process in found if process is not None}


def of_user(user: int) -> Iterator[int]:
    """The pids of one user's processes, which takes a fraction of the time."""
    return (pid for pid in _pids() if _user_of(pid) == user)


def _pids() -> Iterator[int]:
    """The pids, listed again until there is no new one.

    Otherwise a process that forks and ends between being listed and being read would hide its child, as one that moves
    into the background does.
    """
    seen: Set[str] = set()
    for _ in range(_MOST_LISTINGS):
        new = [name for name in os.listdir("/proc") if name.isdigit() and name not in seen]
        if not new:
            break
        seen.update(new)
        yield from map(int, new)


def _user_of(pid: int) -> Optional[int]:
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def bears(pid: int, key: str) -> bool:
    """Whether the process was started by dtctl with this key; true only after its exec."""
    return _bears(pid, {_mark(key)})


def first_that_bears(key: str) -> Optional[run_state.Process]:
    """The oldest live process that was started with this key."""
    ours = [process for process in _bearers(_pids(), {_mark(key)}) if not process.zombie]
    first = min(ours, key=lambda process: (process.start_time, process.pid), default=None)
    return {"pid": first.pid, "start_time": first.start_time, "boot_id": boot_id()} if first else None


def owner(pid: int) -> Optional[Tuple[str, str]]:
    """The run and the task that a process of this user's was started for; None for any other process."""
    variables = environment(pid) if _user_of(pid) == os.geteuid() else {}
    return (variables.get("DTCTL_RUN", ""), variables.get("DTCTL_TASK", "")) if "DTCTL_KEY" in variables else None


def _mark(key: str) -> bytes:
    return b"DTCTL_KEY=" + key.encode("utf-8", "surrogateescape")


def _bears(pid: int, marks: Set[bytes]) -> bool:
    if not marks or _user_of(pid) != os.geteuid():
        return False
    given = _read_proc(pid, "environ")
    return any(mark in given for mark in marks) and not marks.isdisjoint(given.split(b"\0"))


def _bearers(pids: Iterable[int], marks: Set[bytes]) -> Iterator[Process]:
    for pid in pids:
        process = Process.read(pid) if _bears(pid, marks) else None
        if process is not None and _bears(pid, marks):  # still: the number may have been given away just before
            yield process


def tree(
    trainer: Optional[run_state.Process], keys: Iterable[str], keeper: Optional[run_state.Process] = None
) -> List[Process]:
    """Every live process that certainly belongs to a trainer, even in another session.

    These are: the trainer itself (None if its pid is unknown), processes with one of its keys as DTCTL_KEY, processes
    in the session or group of a trainer of which such a process is left (so that its number cannot have been reused),
    the descendants of all of these, and those of its keeper, whatever their environment and session are. After a
    restart of the machine there are none.

    Of other processes as little is read as possible.
    """
    if trainer is not None and trainer["boot_id"] != boot_id():
        return []
    leader, oldest = (trainer["pid"], trainer["start_time"]) if trainer is not None else (-1, 0)
    pids = list(_pids())
    bearers = _bearers(pids, {_mark(key) for key in keys if key})
    ours = {process.pid: process for process in bearers if process.start_time >= oldest}
    first = Process.read(leader)
    if first is not None and first.start_time == oldest:
        ours[leader] = first
    if any(leader in (process.pid, process.group, process.session) for process in ours.values()):
        members = map(Process.read, (pid for pid in pids if leader in _groups_of(pid)))
        ours.update((each.pid, each) for each in members if each and leader in (each.group, each.session))
    ours.update(below(ours))
    if keeper is not None and find(keeper) is not None:
        ours.update(below([keeper["pid"]]))
    ours.pop(os.getpid(), None)
    return [ours[pid] for pid in sorted(ours) if not ours[pid].zombie]


def _groups_of(pid: int) -> Tuple[int, ...]:
    """The numbers of its group and session, without reading /proc."""
    try:
        return os.getpgid(pid), os.getsid(pid)
    except OSError:
        return ()


def below(pids: Iterable[int]) -> Dict[int, Process]:
    """The processes below these, by pid."""
    table = None if _KERNEL_LISTS_CHILDREN else every()
    found: Dict[int, Process] = {}
    parents = list(pids)
    while parents:
        parent = parents.pop()
        for process in _children(parent) if table is None else table.values():
            if process.parent == parent and process.pid not in found:
                found[process.pid] = process
                parents.append(process.pid)
    return found


def _children(pid: int) -> Iterator[Process]:
    try:
        threads = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return
    for thread in threads:
        for child in _read_proc(pid, "task/%s/children" % thread).split():
            process = Process.read(int(child))
            if process is not None:
                yield process


def send_signal(processes: Iterable[Process], number: int) -> None:
    """Signals each one that is still the same process; those that have ended since are skipped."""
    for process in processes:
        if living(process.pid, process.start_time) is not None:
            with suppress(OSError):  # ended just now, or has become another user's: the next listing shows
                os.kill(process.pid, number)


def survivors_of(processes: Iterable[Process], task: Optional[str] = None) -> List[Survivor]:
    """Survivors as the protocol lists them."""
    return [{"task": task, "pid": process.pid, "command": command(process.pid)} for process in processes]


class Ladder:
    """Sends SIGTERM to all processes that `look` finds, after `grace_s` SIGKILL, and repeats until none is left.

    `step` is called until it returns that none is left; it never waits. Times are of the monotonic clock. A process is
    sent one SIGTERM, and none if there is no time to handle it. Processes that the `leader`, a trainer, starts in
    response (a last upload, for example) may use the grace period; without a leader, or if it had ended before, each
    later process is sent its own.
    """

    def __init__(
        self,
        list_processes: Callable[[], List[Process]],
        grace_s: float,
        now: float,
        leader: Optional[run_state.Process] = None,
    ) -> None:
        self.grace_s = grace_s
        self.left: List[Process] = []
        """The processes that were found last."""
        self.killed_after_s: Optional[float] = None
        """The grace period after which processes were left, once that has happened."""
        self._killed: Optional[float] = None
        self._list_processes = list_processes
        self._leader = leader
        self._began = now
        self._asked = False
        self._signalled: Set[Tuple[int, int]] = set()
        self._leader_was_there = False

    def step(self, now: float) -> bool:
        """Returns True when no process is left."""
        overdue = now >= self._began + self.grace_s
        if self._asked and not overdue and self._leader_lives():
            return False  # saves the scan while the leader itself is still at work
        self.left = left = self._list_processes()
        if not self._asked:
            self._leader_was_there = self._leader_lives()
        if not overdue and (not self._asked or not self._leader_was_there):
            self._terminate([process for process in left if (process.pid, process.start_time) not in self._signalled])
        self._asked = True
        if overdue:
            if left and self.killed_after_s is None:
                self.killed_after_s = self.grace_s
            send_signal(left, signal.SIGKILL)
            self._killed = now if self._killed is None else self._killed
        return not left

    def outlived(self, now: float) -> List[Process]:
        """Processes that are still there although they were sent SIGKILL some time ago."""
        return self.left if self._killed is not None and now - self._killed > KILL_LIMIT_S else []

    def _leader_lives(self) -> bool:
        return self._leader is not None and find(self._leader) is not None

    def _terminate(self, left: List[Process]) -> None:
        group = self._leader["pid"] if self._leader is not None and self._leader_was_there else -1
        if group > 0:
            with suppress(OSError):  # ended just now
                os.killpg(group, signal.SIGTERM)  # at once, so that no child is forked past it
        send_signal([process for process in left if process.group != group], signal.SIGTERM)
        self._signalled.update((process.pid, process.start_time) for process in left)
        send_signal(left, signal.SIGCONT)  # a stopped process would not see it


def end(list_processes: Callable[[], List[Process]], grace_s: float) -> None:
    """The same for a session, which waits until nothing is left, or what is left outlives SIGKILL."""
    now = time.monotonic()
    ladder = Ladder(list_processes, grace_s, now)
    while not ladder.step(now) and not ladder.outlived(now):
        time.sleep(LOOK_S)
        now = time.monotonic()
