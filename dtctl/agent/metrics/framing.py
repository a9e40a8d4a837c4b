"""The records of a file that TensorFlow writes and that grows: read from where the last look ended.

The format: `tensorflow/core/lib/io/record_writer.h`; eight bytes of length, its checksum, the data, their checksum.
"""

from __future__ import annotations

import os
import struct

from ..host import files
from ..host.crc32c import masked_crc32c

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterator, Optional, Tuple

MOST_RECORD_BYTES = 32 << 20
"""Larger records are passed over unread: they hold images or graphs."""

_CHUNK = 1 << 20
_HEADER = struct.Struct("<QI")
_AROUND = 16
"""Bytes of a record besides its data."""
_BETWEEN_CHECKS = 256


class Damaged(Exception):
    """The file does not hold what its own checksums say; the text says what is wrong."""


class Replaced(Exception):
    """Another file has its name now, or it has become shorter."""


class RecordFile:
    """One file. `offset`: where the next look begins, behind the last whole record."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.unread_bytes = 0
        self.passed_over = 0
        """Records that were too large."""
        self.inode: Optional[int] = None

    def go_on(self, inode: int, offset: int) -> None:
        """From where somebody else has read this file to."""
        self.inode = inode
        self.offset = offset

    def note(self) -> None:
        """How much of it is there to be read."""
        self.unread_bytes = max(0, files.look(self.path).st_size - self.offset)

    def new(self, check: Callable[[], None]) -> Iterator[Tuple[bytes, int]]:
        """The data of each record that has been added, and the checksum that it should have.

        A record that is not there as a whole is left for the next look. Raises Damaged (again at every look), Replaced,
        OSError, files.Unfit, and what `check` does, which is called now and then.
        """
        opened = files.descriptor(self.path)
        try:
            found = os.fstat(opened)
            if (self.inode is not None and found.st_ino != self.inode) or found.st_size < self.offset:
                raise Replaced
            self.inode = found.st_ino
            self.unread_bytes = found.st_size - self.offset
            wanted = _CHUNK
            while self.unread_bytes >= _AROUND:
                check()
                chunk = files.read_at(opened, self.offset, min(wanted, self.unread_bytes))
                begin = self.offset
                yield from self._whole(chunk, check)
                wanted, cut_off = _CHUNK, self.offset - begin
                if len(chunk) - cut_off < _HEADER.size:
                    continue
                size = _length(chunk, cut_off, self.offset) + _AROUND
                if size > self.unread_bytes:
                    return  # it is being written, or never will be
                if size - _AROUND > MOST_RECORD_BYTES:
                    self._pass(size)
                    self.passed_over += 1
                wanted = max(_CHUNK, min(size, MOST_RECORD_BYTES + _AROUND))
        finally:
            os.close(opened)

    def _whole(self, chunk: bytes, check: Callable[[], None]) -> Iterator[Tuple[bytes, int]]:
        """The records that end within the chunk, which begins at `offset`."""
        position, base, left = 0, self.offset, _BETWEEN_CHECKS
        while len(chunk) - position >= _AROUND:
            size = _length(chunk, position, base + position)
            end = position + size + _AROUND
            if end > len(chunk):
                return
            data, checksum = chunk[position + 12 : end - 4], int.from_bytes(chunk[end - 4 : end], "little")
            yield data, checksum  # a caller that finds it damaged leaves it unread
            self._pass(end - position)
            position = end
            left -= 1
            if not left:
                check()
                left = _BETWEEN_CHECKS

    def _pass(self, size: int) -> None:
        self.offset += size
        self.unread_bytes -= size


def _length(chunk: bytes, position: int, offset: int) -> int:
    if len(chunk) - position < _HEADER.size:
        raise Damaged("it became shorter while it was read")
    size, checksum = _HEADER.unpack_from(chunk, position)
    if masked_crc32c(chunk[position : position + 8]) != checksum:
        raise Damaged("at byte %d there is no record: the checksum of its length is wrong" % offset)
    return int(size)
