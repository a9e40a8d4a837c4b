"""Opens files that others may have created: trainers in directories of attempts, other users among checkpoints.

Only this module opens them: never through a link, without waiting for the other end of a FIFO, and checked again once
they are open. Anything but a regular file, or a too large one, is an OSError that describes it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Optional

_SAFELY = os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY

_KINDS = {
    stat.S_IFLNK: "is a link",
    stat.S_IFIFO: "is a FIFO",
    stat.S_IFDIR: "is a directory",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


class Unfit(OSError):
    """Something else is in the file's place; `strerror` describes it, as in 'is a FIFO'."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.EINVAL, what, path)


def stat_regular(path: str, at: Optional[int] = None) -> os.stat_result:
    """The status of a regular file, without opening it. `at`: the directory of a relative path."""
    return regular(path, os.stat(path, dir_fd=at, follow_symlinks=False))


def regular(path: str, found: os.stat_result) -> os.stat_result:
    """`found` when it is that of a regular file. Raises Unfit."""
    if not stat.S_ISREG(found.st_mode):
        raise Unfit(path, _KINDS.get(stat.S_IFMT(found.st_mode), "is not a regular file"))
    return found


def descriptor(path: str, flags: int = os.O_RDONLY, at: Optional[int] = None) -> int:
    """The descriptor of the opened file, readable only by its user if it is new. Raises Unfit, OSError."""
    try:
        opened = os.open(path, flags | _SAFELY, 0o600, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a FIFO or socket, a directory
            stat_regular(path, at)
        raise
    try:
        regular(path, os.fstat(opened))
        if flags & (os.O_WRONLY | os.O_RDWR):
            os.set_blocking(opened, True)  # it may become the standard output of a program, which would see it
    except BaseException:
        os.close(opened)
        raise
    return opened


@contextmanager
def opened(path: str, flags: int = os.O_RDONLY, at: Optional[int] = None) -> Iterator[int]:
    """The same as `descriptor`, closed at the end."""
    file = descriptor(path, flags, at)
    try:
        yield file
    finally:
        os.close(file)


def private(path: str, flags: int) -> int:
    """An `opener` for `open`."""
    return descriptor(path, flags)


def read(path: str, most: int, at: Optional[int] = None) -> bytes:
    """The whole file. Raises Unfit, also for one of more than `most` bytes."""
    with opened(path, at=at) as file:
        size = os.fstat(file).st_size
        if size > most:
            raise Unfit(path, "is too large: it has %d bytes, and %d are the most" % (size, most))
        return read_at(file, 0, size)


def read_at(file: int, offset: int, size: int) -> bytes:
    """Reads `size` bytes at an offset; fewer at the end of the file."""
    data = os.pread(file, size, offset) if size > 0 else b""
    if len(data) in (0, size):
        return data
    pieces = [data]
    read_bytes = len(data)
    while read_bytes < size:
        piece = os.pread(file, size - read_bytes, offset + read_bytes)
        if not piece:
            break
        pieces.append(piece)
        read_bytes += len(piece)
    return b"".join(pieces)


def leads_on(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory, or a link to one by this user or root: links of other users are not followed."""
    if not entry.is_symlink():
        return entry.is_dir(follow_symlinks=False)
    return entry.stat(follow_symlinks=False).st_uid in (0, os.geteuid()) and entry.is_dir()


def directory(path: str, at: Optional[int] = None) -> int:
    """The descriptor of a directory, which follows links by the same rule as `leads_on`. Raises Unfit, OSError."""
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        found = os.fstat(place)
        if stat.S_ISLNK(found.st_mode):
            if found.st_uid not in (0, os.geteuid()):
                raise Unfit(path, "is a link that another user has made")
            path = os.readlink("", dir_fd=place)  # of the same link that was inspected
    finally:
        os.close(place)
    links = 0 if stat.S_ISLNK(found.st_mode) else os.O_NOFOLLOW
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | links, dir_fd=at)


def directory_below(path: str, name: str) -> int:
    """The descriptor of a directory below another, which itself may be reached through any link; `name` may be a path,
    of which each step follows links by the rule of `leads_on`. Raises Unfit, OSError.
    """
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for step in name.split("/"):
        above = opened
        try:
            opened = directory(step, above)
        finally:
            os.close(above)
    return opened
