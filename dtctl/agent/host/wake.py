"""The FIFO of a supervisor: a byte in it ends its sleep, and its reader shows that there is a supervisor.

A supervisor that works also holds a lock on it, which needs no room on a disk and ends with the process.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def is_read(path: str) -> bool:
    """Whether there is a supervisor. Does not wake it."""
    descriptor = _open(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def show_work(descriptor: int) -> None:
    """Shows sessions that this supervisor works, by a lock that it keeps until it closes the descriptor.

    Called in every loop: a session that queries the lock keeps it for an instant.
    """
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_at_work(path: str) -> bool:
    """Whether a supervisor has completed a loop, also when a full disk keeps it from writing its state.

    False for one of an earlier build, which takes no lock.
    """
    descriptor = _open(path)
    if descriptor is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks there
    finally:
        os.close(descriptor)
    return False


def ring(path: str) -> None:
    """Wakes the supervisor, if there is one."""
    descriptor = _open(path)
    if descriptor is not None:
        with suppress(OSError):  # full: it is awake already
            os.write(descriptor, b".")
        os.close(descriptor)


def send(path: str, line: bytes) -> bool:
    """Wakes the supervisor with a line, which it reads as a whole; False without one, or if it has no room now.

    The line has up to PIPE_BUF bytes, less two.
    """
    descriptor = _open(path)
    if descriptor is None:
        return False
    try:
        return os.write(descriptor, b"\n" + line + b"\n") > 0
    except OSError:  # full
        return False
    finally:
        os.close(descriptor)


def listen(path: str) -> int:
    """The descriptor for which the supervisor waits.

    It is also open for writing, so that it never reads an end of file. Replaces any file that a trainer may have put
    there.
    """
    descriptor = _open(path, os.O_RDWR)
    if descriptor is None:
        with suppress(FileNotFoundError):
            os.unlink(path)
        os.mkfifo(path, 0o600)
        descriptor = _open(path, os.O_RDWR)
        if descriptor is None:
            raise FileNotFoundError(path)
    return descriptor


def _open(path: str, flags: int = os.O_WRONLY) -> Optional[int]:
    """The descriptor; None if no process reads it (ENXIO), if the run is removed (ENOENT), or if it is no FIFO."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return None
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return descriptor
