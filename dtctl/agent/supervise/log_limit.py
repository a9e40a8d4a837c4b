"""Keeps the logs of a task within their limit, without its trainer's help or knowledge.

A trainer holds its log open and appends to it, for as long as it lives. So no log is renamed or made shorter: a hole is
punched into its front (fallocate, FALLOC_FL_PUNCH_HOLE), which gives the disk's blocks back. The file's size, all
offsets, and the trainer's descriptor stay what they are, and no line is lost but the oldest ones. Where a file system
cannot do that (NFS before 4.2), there is no limit.
"""

from __future__ import annotations

import errno
import os

from ..host import files, log, paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional, Tuple

    Punch = Callable[[int, int, int], None]

KEPT_BYTES = 1 << 20
"""Of each log the end always stays: it shows why an attempt has ended."""

_STEP_BYTES = 16 << 20
"""Punched at once: a trainer that writes meanwhile waits for so much at the most."""

_BLOCK = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE: linux/falloc.h"""


class LogLimit:
    """Of all attempts of one task together. `most_bytes` None: there is no limit."""

    def __init__(self, most_bytes: Optional[int]) -> None:
        self._most_bytes = most_bytes
        self._looked = ("", 0)

    def update(self, attempt_directory: str) -> None:
        """Called often; looks at all logs when an attempt is new, or its log has grown by an eighth of the limit."""
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
                log.note("logs.limit cannot be kept here: this file system punches no holes")

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
