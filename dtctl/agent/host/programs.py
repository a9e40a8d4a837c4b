"""The agent's programs on this host: agent/SHA256, one for each version of dtctl that has been here.

Every process of the agent holds a shared lock on the program that it runs from. agent/current, a link, is the
program that a restart of the machine begins with. And what such a process does first: detach, rename itself, close what
it inherited.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress

from . import locks, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Iterator, List, Optional, Sequence

_SHA256 = r"[0-9a-f]{64}\Z"
_UNUSED_S = 3600.0
"""A session that has just found its program here may not have locked it yet."""

_lock: Optional[int] = None


def directory() -> str:
    """The program that this process runs from."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return os.path.dirname(package)


def hold() -> None:
    """Keeps the program from being removed as long as this process, or one that it forks, lives."""
    global _lock
    with suppress(OSError):  # a full disk; the lock file is the only thing to be written
        _lock = locks.hold(_lock_path(directory()), exclusive=False)


def save_compiled() -> None:
    """For the processes to come, what this one has compiled (compiled.py)."""
    with suppress(OSError):  # a full disk: they compile it again
        getattr(sys.modules[__name__].__loader__, "save", lambda: None)()


def held() -> List[int]:
    """The lock's descriptor, if there is one."""
    return [] if _lock is None else [_lock]


def set_current(root: str) -> str:
    """Makes this process's program the one of a restart, and returns a path that is the same for every version."""
    path = _current(root)
    if os.path.realpath(path) != directory():
        temporary = "%s.%d.new" % (path, os.getpid())
        os.symlink(os.path.basename(directory()), temporary)
        os.replace(temporary, path)
    return path


def has_current(root: str) -> bool:
    return os.path.islink(_current(root))


def forget_current(root: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_current(root))


def unused(root: str, now: float) -> Iterator[str]:
    """Programs of other versions that no process runs from. Each is locked until the next one is asked for."""
    store = os.path.join(root, "agent")
    needed = (directory(), os.path.realpath(_current(root)))
    for name in paths.entries(store):
        path = os.path.join(store, name)
        if not re.match(_SHA256, name) or path in needed or now - paths.modified(path) < _UNUSED_S:
            continue
        with suppress(FileNotFoundError), locks.alone(_lock_path(path), create=True) as alone:
            if alone:
                yield path


def _current(root: str) -> str:
    return os.path.join(root, "agent", "current")


def _lock_path(program: str) -> str:
    return os.path.join(program, "lock")


MOST_DESCRIPTORS = 65536


def detached(work: Callable[[], None]) -> None:
    """Has `work` done by a new process, no child of this one and in a session of its own, and returns at once."""

    def be_orphaned() -> None:
        os.setsid()
        fork(work)

    os.waitpid(fork(be_orphaned), 0)


def fork(work: Callable[[], None], code: int = 0) -> int:
    """The id of a new process, which does `work` and ends with this code, even if it raises.

    It never returns into its parent's program: what it could not flush on a full disk is lost with it.
    """
    parent = os.getpid()
    try:
        pid = os.fork()
        if pid == 0:
            work()
        return pid
    except BaseException:  # the new process ends here, and its log says why
        if os.getpid() == parent:
            raise
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        if os.getpid() != parent:
            try:
                sys.stderr.flush()
            finally:
                os._exit(code)


def rename(name: str) -> None:
    """Shown by `ps -o comm` and `top`; the command line stays that of the process that this one was forked from."""
    with suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:  # only a courtesy
        file.write(name)


def take_command_line(argv: Sequence[str]) -> bool:
    """Shows these words in `ps` in place of the command line, as an exec would; False if they do not fit in there."""
    line = b"".join(os.fsencode(argument) + b"\0" for argument in argv)
    try:
        with open("/proc/self/stat", "rb") as stat:
            begin, end = map(int, stat.read().rpartition(b")")[2].split()[45:47])  # proc(5): arg_start and arg_end
        if len(line) > end - begin:
            return False
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(begin)
            memory.write(line.ljust(end - begin, b"\0"))
    except (OSError, ValueError):
        return False
    return True


def close_descriptors(but: Iterable[int] = ()) -> None:
    """Closes all but the standard streams and these."""
    lowest = 3
    for descriptor in sorted(but):
        os.closerange(lowest, descriptor)
        lowest = descriptor + 1
    os.closerange(lowest, MOST_DESCRIPTORS)


def isolate(name: str, but: Iterable[int]) -> None:
    """For a process that runs what is not dtctl's: it has only these descriptors, and leaves no core."""
    import resource

    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a session's are those of the conversation with the controller
        os.dup2(null, stream)
    close_descriptors(but)
    rename(name)
    restore_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def restore_signals() -> None:
    """Every signal does what it does in a program started by hand."""
    for number in range(1, signal.NSIG):
        with suppress(OSError, ValueError):  # SIGKILL, SIGSTOP, and numbers that the C library keeps for itself
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
