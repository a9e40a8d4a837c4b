"""Files that others may have made: a trainer in the directory of its attempt, another user where checkpoints lie.

They are opened here and nowhere else: never through a link, without waiting for the other end of a FIFO, and checked
again once they are open. What is not a regular file, or too large, is an OSError whose text says what it is.
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
    """Something else is in the file's place; `strerror` says what, as in 'is a FIFO'."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.EINVAL, what, path)


def stat_regular(path: str, at: Optional[int] = None) -> os.stat_result:
    """What is known of a regular file without opening it. `at`: the directory that a relative path begins in."""
    return regular(path, os.stat(path, dir_fd=at, follow_symlinks=False))


def regular(path: str, found: os.stat_result) -> os.stat_result:
    """`found` when it is that of a regular file. Raises Unfit."""
    if not stat.S_ISREG(found.st_mode):
        raise Unfit(path, _KINDS.get(stat.S_IFMT(found.st_mode), "is not a regular file"))
    return found


def descriptor(path: str, flags: int = os.O_RDONLY, at: Optional[int] = None) -> int:
    """Of the opened file, which is its user's alone when it is made by this. Raises Unfit, OSError."""
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
    """As `descriptor`, which is closed at the end."""
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
    """So many bytes from there; fewer at the end of the file."""
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
    """True for a directory, and for a link to one that this user or root has made: other users choose nothing here."""
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
            path = os.readlink("", dir_fd=place)  # of the very link that was looked at
    finally:
        os.close(place)
    links = 0 if stat.S_ISLNK(found.st_mode) else os.O_NOFOLLOW
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | links, dir_fd=at)


def directory_below(path: str, name: str) -> int:
    """The descriptor of a directory in another, which itself may be reached through any link. Raises Unfit, OSError."""
    base = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return directory(name, base)
    finally:
        os.close(base)
