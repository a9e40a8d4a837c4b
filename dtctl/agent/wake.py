"""The FIFO of a supervisor: a byte in it ends its sleep, and its reader tells that there is a supervisor."""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional


def is_read(path: str) -> bool:
    """True while there is a supervisor. Does not wake it."""
    descriptor = _open(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


def ring(path: str) -> None:
    """Wakes the supervisor, if there is one."""
    descriptor = _open(path)
    if descriptor is not None:
        with suppress(OSError):  # full: it is awake already
            os.write(descriptor, b".")
        os.close(descriptor)


def listen(path: str) -> int:
    """For the supervisor: the descriptor to wait for. It is open for writing too, so that it never comes to its end."""
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _open(path: str) -> Optional[int]:
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # ENXIO: nobody reads; ENOENT: no run
