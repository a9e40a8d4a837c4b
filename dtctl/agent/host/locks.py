"""Locks between the agents of one root, which may be on several machines (a shared home directory).

They end with the process that holds them, so one that was killed is never waited for.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress

from . import files, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional

_TAKEN = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS_HERE = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
PATIENCE_S = 5.0


def hold(path: str, exclusive: bool, create: bool = True, certain: bool = False) -> Optional[int]:
    """The descriptor of the locked file, to be closed at the end; None when another process has it.

    On a file system without locks every process gets one, as renames make what they guard safe as well; a process
    that has to be `certain` gets none. Without `create` a file that is not there raises FileNotFoundError.
    """
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    while True:
        descriptor = files.descriptor(path, flags)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            without = error.errno in _NO_LOCKS_HERE
            if certain or not without:
                os.close(descriptor)
                if without or error.errno in _TAKEN:
                    return None
                raise
        if paths.is_still(path, os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)  # its last holder has removed the file: this lock would guard nothing


@contextmanager
def closing(descriptor: Optional[int]) -> Iterator[Optional[int]]:
    """A lock that is held, if it is, until the end."""
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def alone(path: str, create: bool = False) -> Iterator[bool]:
    """Whether no other process has the lock of a file, for certain; none gets it then. Raises FileNotFoundError.

    Of what is no file, which a trainer may have put there, nothing is certain.
    """
    descriptor = None
    with suppress(files.Unfit):
        descriptor = hold(path, exclusive=True, create=create, certain=True)
    with closing(descriptor):
        yield descriptor is not None


def wait_turn(path: str, done: Callable[[], bool]) -> Optional[int]:
    """An exclusive lock, waiting for its holder; None when `done` became true, or the holder gave no sign of life.

    The sign is a new modification time of the file (`show_life`): another controller that is suspended in the
    middle of its work must not hold up this one.
    """
    last_sign = -1
    patient_until = 0.0
    while True:
        if done():
            return None
        descriptor = hold(path, exclusive=True)
        if descriptor is not None:
            return descriptor
        sign = paths.modified_ns(path)
        if sign != last_sign:
            last_sign, patient_until = sign, time.monotonic() + PATIENCE_S
        elif time.monotonic() > patient_until:
            return None
        time.sleep(0.05)


def await_lock(path: str, exclusive: bool, patience_s: float) -> Optional[int]:
    """Waits for one who is at work on what it guards; None when that takes longer."""
    patient_until = time.monotonic() + patience_s
    while True:
        descriptor = hold(path, exclusive)
        if descriptor is not None or time.monotonic() > patient_until:
            return descriptor
        time.sleep(0.01)


def share(path: str) -> Optional[int]:
    """A shared lock, which is waited for a moment."""
    return await_lock(path, exclusive=False, patience_s=PATIENCE_S)


def show_life(descriptor: int) -> None:
    os.utime(descriptor)
