"""Has the agent's program written to the disk: a restart of the machine begins with it, after a loss of power too."""

from __future__ import annotations

import os
from contextlib import suppress

from ..host import daemon, paths, programs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

_STAMP = "kept"
"""The bootstrap's, which is newer than any file that it has kept."""
_SETTLED = "settled"


def settle_later() -> None:
    """Has the program that this process runs from written to the disk, once, by a process that nobody waits for."""
    program = programs.directory()
    kept, settled = (os.path.join(program, name) for name in (_STAMP, _SETTLED))
    if os.path.exists(kept) and paths.modified_ns(settled) < paths.modified_ns(kept):
        with suppress(OSError):  # no room for a process; the next run asks again
            daemon.detached(lambda: _settle_alone(program))


def _settle_alone(program: str) -> None:
    daemon.close_descriptors(but=programs.held())
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # a connection ends when nobody has them any more
        os.dup2(nothing, stream)
    os.chdir("/")
    settle(program)


def settle(program: str) -> None:
    """The disk is told of all files before any is waited for: so a journal is written some times, not for each."""
    _with_each(program, _begin)
    _with_each(program, os.fsync)
    paths.write_text(os.path.join(program, _SETTLED), "")


def _with_each(program: str, work: Callable[[int], None]) -> None:
    """The program's files and directories, and the one that it is in."""
    found = {os.path.dirname(program)}
    for directory, _, names in os.walk(program):
        found.update([directory, *(os.path.join(directory, name) for name in names)])
    for path in sorted(found):
        with suppress(FileNotFoundError):  # of a temporary name
            opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                work(opened)
            finally:
                os.close(opened)


def _begin(opened: int) -> None:
    with suppress(OSError):  # a directory, or a file system that does not know this
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
