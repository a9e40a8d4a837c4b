"""The first steps of a process of the agent: detach, rename itself, close inherited descriptors."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence

MOST_DESCRIPTORS = 65536


def detached(work: Callable[[], None]) -> None:
    """Runs `work` in a new process, no child of this one and in a session of its own; returns at once."""

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
    except BaseException:  # the new process ends here, and its log shows why
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
    """Sets the name in `ps -o comm` and `top`; the command line stays that of the process from which it was forked."""
    with suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as file:  # best effort
        file.write(name)


def take_command_line(argv: Sequence[str]) -> bool:
    """Shows these arguments in `ps` instead of the command line, as an exec would; False if they do not fit."""
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
    """Isolates a process that runs foreign code: it has only these descriptors, and writes no core."""
    import resource

    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # a session's are those of the conversation with the controller
        os.dup2(null, stream)
    close_descriptors(but)
    rename(name)
    restore_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def restore_signals() -> None:
    """Restores the default action of every signal."""
    for number in range(1, signal.NSIG):
        with suppress(OSError, ValueError):  # SIGKILL, SIGSTOP, and numbers that the C library reserves
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
