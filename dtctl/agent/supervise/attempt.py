"""One attempt of a task, as its supervisor sees it: the files that its keeper writes, and its processes.

The trainer runs as the same user and may write what it likes into the attempt's directory. A damaged file
there leads to a decision, as a missing one does.

Logs are kept within their limit without the trainer's help or knowledge. It holds its log open and appends to it, for
as long as it lives. So no log is renamed or made shorter: a hole is punched into its front (fallocate,
FALLOC_FL_PUNCH_HOLE), which gives the disk's blocks back. The file's size, all offsets, and the trainer's descriptor
stay what they are, and no line is lost but the oldest ones. Where a file system cannot do that (NFS before 4.2), there
is no limit.
"""

from __future__ import annotations

import errno
import os
import signal

from ..host import errors, files, machine, paths, processes
from ..records.kinds import made
from ..records.reasons import fact
from ..records.run_state import MOST_LEFT, Ending, Left, Process, Start
from ..run import policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Tuple, Type, TypeVar

    R = TypeVar("R")
    Punch = Callable[[int, int, int], None]


class Samples:
    """Samples of one attempt. A line `EPOCH OFFSET` is added only when the log's size has changed."""

    def __init__(self, directory: str) -> None:
        self._log = os.path.join(directory, "log")
        self._times = os.path.join(directory, "times")
        self._size = self._last()

    def _last(self) -> int:
        words = paths.tail(self._times, 64).split()
        return int(words[-1]) if words and words[-1].isascii() and words[-1].isdigit() else 0

    def take(self, wall: float) -> None:
        try:
            size = files.stat_regular(self._log).st_size
        except OSError:
            return  # not begun, or no log
        if size == self._size:
            return
        try:
            paths.append_line(self._times, "%.3f %d" % (wall, size))
        except OSError:
            return  # the disk is full: the next sample is written
        self._size = size


START_LIMIT_S = 10.0
"""If start.json is missing for this long, the keeper counts as killed."""

EXEC_LIMIT_S = 2.0
"""A live process counts as the trainer after this long even if its environment cannot be read."""

CONTAINER_LIMIT_S = 120.0
"""The same for a container, whose file system may have to be unpacked first."""

CLIENT_LIMIT_S = 60.0
"""How long the container engine's process may take to remove the container and exit."""

LEAVE_S = 0.5
"""How long processes that a trainer left may end by themselves, as Python's own helpers do."""

_MOST_ROUNDS = 5

UNWRITTEN_S = 3.0
"""If a keeper has not written an exit for this long, something prevents it, usually a full disk."""

LEFTOVERS_GRACE_S = 5.0
"""The time between SIGTERM and SIGKILL for processes that an ended trainer left."""


class Attempt:
    """`now` is the monotonic clock and `wall` epoch seconds, here and below."""

    def __init__(self, directory: str, now: float) -> None:
        self.directory = directory
        self.exit: Optional[Ending] = None
        """How the trainer ended; None while it runs."""
        self.left_behind: List[Left] = []
        """Processes that remained when the trainer exited by itself, and that dtctl ends."""
        self.oom_kills_before = machine.oom_kills()
        """The host's number of OOM kills when the attempt was first seen."""
        self._seen_since = now
        self._start: Optional[Start] = None
        self._contained: Optional[Process] = None
        """The first process in its container, once it was seen."""
        self._alone_since: Optional[float] = None
        self._damage: Optional[paths.Damaged] = None
        """The damage of start.json, if any."""
        self._ladder: Optional[processes.Ladder] = None
        self._leaving_since: Optional[float] = None
        self._gone_since: Optional[float] = None
        """The time since when its process is gone while its keeper has not written the exit."""
        self._samples = Samples(directory)

    @property
    def ending(self) -> bool:
        """Some of its processes are being ended."""
        return self._ladder is not None or self._leaving_since is not None

    @property
    def killed_after_s(self) -> Optional[float]:
        """The grace period that some of its processes have not heeded; None while none was killed."""
        return self._ladder.killed_after_s if self._ladder is not None else None

    @property
    def start(self) -> Optional[Start]:
        """start.json; None while there is none, and when it is damaged."""
        if self._start is None and self._damage is None:
            try:
                self._start = self._read("start.json", Start)
            except paths.Damaged as damage:
                self._damage = damage
        return self._start

    @property
    def trainer(self) -> Optional[Process]:
        """The trainer's process; None while unknown. In a container the first process there, while it lives."""
        start = self.start
        if start is not None and start["contained"]:
            if self._contained is None:
                self._contained = processes.first_that_bears(self.key)
            if self._contained is not None and processes.find(self._contained) is not None:
                return self._contained
        return processes.trainer(start) if start is not None else None

    @property
    def key(self) -> str:
        """DTCTL_KEY of its processes: its directory, unless an earlier dtctl has started it."""
        start = self.start
        return (start and start["key"]) or self.directory

    def update(self, now: float, wall: float) -> None:
        """Sees whether the trainer has ended."""
        self._samples.take(wall)
        if self.exit is None:
            self._end_client(now)
            self.exit = self._find_exit(now, wall)
            if self.exit is not None:
                self._samples.take(wall)

    def is_unwritten(self, now: float) -> bool:
        """Whether its process has ended, and its keeper cannot write how: it tries until there is room."""
        return self.exit is None and self._gone_since is not None and now - self._gone_since > UNWRITTEN_S

    def runs(self, now: float) -> bool:
        """True once exec has succeeded, of an attempt that has not ended."""
        trainer = self.trainer
        if self.exit is not None or trainer is None or processes.find(trainer) is None:
            return False
        limit_s = CONTAINER_LIMIT_S if self.start and self.start["contained"] else EXEC_LIMIT_S
        return processes.bears(trainer["pid"], self.key) or now - self._seen_since > limit_s

    def end(self, grace_s: float, now: float) -> bool:
        """Asks the trainer to end, and sees to it that it does; False when there is nothing to be asked (yet)."""
        if self._ladder is None:
            trainer = self.trainer
            if trainer is None or processes.find(trainer) is None:
                return False  # its keeper is about to record the start, or the exit
            self._ladder = processes.Ladder(self._remains, grace_s, now, trainer)
        self._ladder.grace_s = grace_s
        self._ladder.step(now)
        return True

    def hold(self) -> None:
        """Stops its processes by SIGSTOP. Called repeatedly: one may have started another meanwhile."""
        for _ in range(_MOST_ROUNDS):
            moving = [process for process in self._remains() if not process.frozen]
            if not moving:
                break
            processes.send_signal(moving, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets stopped processes continue."""
        processes.send_signal(self._remains(), signal.SIGCONT)

    def left(self, now: float) -> List[processes.Process]:
        """Processes that have survived SIGKILL."""
        return self._ladder.outlived(now) if self._ladder is not None else []

    def cleared(self, asked: bool, grace_s: float, now: float) -> bool:
        """Ends the processes that an ended trainer left; True when none remain."""
        if self._ladder is None and self._leaves(now):
            return False
        if self._ladder is None:
            leftovers_s = min(LEFTOVERS_GRACE_S, grace_s)
            self._ladder = processes.Ladder(self._remains, leftovers_s, now, self.trainer)
        elif asked:
            self._ladder.grace_s = grace_s
        return self._ladder.step(now)

    def _leaves(self, now: float) -> bool:
        """Whether processes that the trainer left may still end by themselves; records those that do not."""
        there = self._remains()
        if there and self._leaving_since is None:
            self._leaving_since = now
        if there and now - (self._leaving_since or now) < LEAVE_S:
            return True
        self.left_behind = [{"pid": each.pid, "command": processes.command(each.pid)} for each in there[:MOST_LEFT]]
        return False

    def _remains(self) -> List[processes.Process]:
        """The attempt's processes, without the container engine's, whose exit is the trainer's."""
        keeper = processes.keeper(self.start) if self.start is not None else None
        return processes.tree(self._contained or self.trainer, [self.key], keeper)

    def _end_client(self, now: float) -> None:
        """Ends the container engine's process if it hangs after all processes in the container have ended."""
        start = self.start
        if start is None or self._contained is None or processes.find(self._contained) is not None:
            return
        self._alone_since = self._alone_since or now
        if now - self._alone_since > CLIENT_LIMIT_S:
            processes.send_signal(processes.tree(processes.trainer(start), []), signal.SIGKILL)

    def _find_exit(self, now: float, wall: float) -> Optional[Ending]:
        start = self.start
        if start is None:
            return self._find_exit_without_start(now, wall)
        if start["pid"] is None:
            return policy.unknown_exit(start["started"], "unknown", fact("never_started"))
        child = processes.trainer(start)
        if child is not None and processes.find(child) is not None:
            return None
        self._gone_since = self._gone_since or now
        awaited = _keeper_lives(start)  # asked first: an exit that is not written by then never will be
        try:
            recorded = self._read("exit.json", Ending)
        except paths.Damaged as damage:
            return None if awaited else _unknown(wall, damage)
        if recorded is not None or awaited:
            return recorded
        if start["boot_id"] != processes.boot_id():
            return policy.unknown_exit(None, "host_restarted", fact("host_restarted"))
        return policy.unknown_exit(wall, "unknown", fact("keeper_killed"))

    def _find_exit_without_start(self, now: float, wall: float) -> Optional[Ending]:
        try:
            recorded = self._read("exit.json", Ending)
            if recorded is None and self._damage is None and now - self._seen_since > START_LIMIT_S:
                self._give_up(wall)
        except paths.Damaged as damage:
            return _unknown(wall, damage)
        return _unknown(wall, self._damage) if recorded is None and self._damage is not None else recorded

    def _give_up(self, wall: float) -> None:
        """Sees to it that an attempt without start.json never starts: its keeper and we claim the same file."""
        path = self._path("start.json")
        try:
            paths.claim_json(path, made(Start, started=wall))
        except OSError as error:
            raise _damaged(path, error) from None

    def _read(self, name: str, kind: Type[R]) -> Optional[R]:
        """The record in a file; None if there is no file. Raises Damaged, also if it is not a regular file."""
        path = self._path(name)
        try:
            return paths.read_record(path, kind)
        except OSError as error:
            raise _damaged(path, error) from None

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)


def _damaged(path: str, error: OSError) -> Exception:
    """The error itself if it may be temporary, otherwise Damaged."""
    if errors.passes(error):
        return error
    return paths.Damaged("%s is damaged: %s" % (path, error.strerror or error))


def _unknown(wall: float, damage: Exception) -> Ending:
    return policy.unknown_exit(wall, "unknown", fact("exit_damaged", text=str(damage)))


def _keeper_lives(start: Start) -> bool:
    """Whether the keeper lives: it then writes exit.json, or waits for space on a full disk. Resumes a stopped one."""
    keeper = start["keeper"]
    if keeper is None or start["boot_id"] != processes.boot_id():
        return False
    return processes.resumed(processes.living(keeper["pid"], keeper["start_time"])) is not None


KEPT_BYTES = 1 << 20
"""The size of the end of each log that is always kept, because it shows why an attempt ended."""

_STEP_BYTES = 16 << 20
"""The largest hole punched at once, because a trainer that writes meanwhile waits for it."""

_BLOCK = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE: linux/falloc.h"""


class LogLimit:
    """The limit for the logs of all attempts of one task together. `most_bytes` None: there is no limit."""

    def __init__(self, most_bytes: Optional[int]) -> None:
        self._most_bytes = most_bytes
        self._looked = ("", 0)

    def update(self, attempt_directory: str) -> None:
        """Called often; measures all logs if an attempt is new, or its log has grown by an eighth of the limit."""
        if self._most_bytes is None:
            return
        path = os.path.join(attempt_directory, "log")
        try:
            size = files.stat_regular(path).st_size
            if path == self._looked[0] and 0 <= size - self._looked[1] < self._most_bytes // 8:
                return
            self._looked = path, size
            self._keep(os.path.dirname(attempt_directory))
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                self._most_bytes = None
                errors.note("logs.limit cannot be kept here: this file system punches no holes")

    def _keep(self, directory: str) -> None:
        """A quarter is made free at once."""
        assert self._most_bytes is not None
        logs = (os.path.join(directory, "attempt-%d" % number, "log") for number in paths.attempts(directory))
        found = [each for each in map(_extent, logs) if each is not None]
        excess = sum(size for _, _, size in found) - self._most_bytes
        if excess <= 0:
            return
        excess += self._most_bytes // 4
        for path, start, size in found:  # the oldest attempt's first
            cut = min(excess, size - KEPT_BYTES) // _BLOCK * _BLOCK
            if cut > 0:
                cut_front(path, start, cut)
                excess -= cut


def cut_front(path: str, start: int, size: int) -> None:
    """Takes so many bytes out of a log from where it begins now."""
    with files.opened(path, os.O_WRONLY) as opened:
        punch = _punch()
        end = start + size
        while start < end:
            step = min(_STEP_BYTES, end - start)
            punch(opened, start, step)
            start += step


def _extent(path: str) -> Optional[Tuple[str, int, int]]:
    """A log, where its data begins, and how much of it there is on the disk."""
    try:
        with files.opened(path) as opened:
            found = os.fstat(opened)
            start = os.lseek(opened, 0, os.SEEK_DATA) // _BLOCK * _BLOCK if found.st_size else 0
    except OSError:
        return None  # it is none, or a hole as a whole
    return path, start, min(found.st_size - start, found.st_blocks * 512)


def _punch() -> Punch:
    """Python has no fallocate. Raises OSError where the C library cannot be called."""
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
        fallocate = getattr(library, "fallocate64", None) or library.fallocate
    except (ImportError, AttributeError, OSError):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]

    def punch(opened: int, start: int, size: int) -> None:
        if fallocate(opened, _KEEP_SIZE | _PUNCH_HOLE, start, size):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    return punch
