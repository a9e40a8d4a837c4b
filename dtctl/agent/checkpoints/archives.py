"""Zip archives, as Keras and PyTorch write them: whether one is whole, by its end, and whether its parts are as saved.

An archive has a table of contents at its end, so one that was cut short has none (APPNOTE.TXT, 4.3). Each part has a
checksum. Nothing in an archive is run or unpickled, and it may claim any size.
"""

from __future__ import annotations

import io
import struct

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional
    from zipfile import ZipFile, ZipInfo

    Check = Callable[[], None]

CUT = "it is cut short, or is no archive"

END_BYTES = 66_000
"""The bytes that contain the end of an archive: it has 22 bytes, and a comment of at most 65535."""

MOST_CONTENTS = 1 << 20
"""The most bytes of an archive's table of contents: some thousand parts, where Keras writes a handful. Each part takes
ten times as much memory as it has bytes there."""

MOST_CONTENTS_OF_TORCH = 4 << 20
"""PyTorch writes a part for each tensor."""

_PIECE_BYTES = 1 << 20
_END, _FAR_END, _LOCATOR = b"PK\5\6", b"PK\6\6", b"PK\6\7"
_PART, _ENTRY = b"PK\3\4", b"PK\1\2"
_END_SIZE, _LOCATOR_SIZE, _FAR_END_SIZE = 22, 20, 56
_IN_FAR_END, _NO_ROOM = 0xFFFFFFFF, 0xFFFF
UNKNOWN = -1
"""The number of parts of an archive whose end has no room for it."""


class Archive:
    """Where one archive lies in a file: from `begin` on; its table of contents has `size` bytes and `number` parts."""

    __slots__ = ("begin", "end", "number", "size")

    def __init__(self, begin: int, end: int, size: int, number: int) -> None:
        self.begin = begin
        self.end = end
        self.size = size
        self.number = number


def last_archive(file: int, size: int) -> Optional[Archive]:
    """The archive that ends where `size` bytes of the file end, perhaps after others; None if there is none.

    Its first part and its table of contents are where it says that they are.
    """
    tail = files.read_at(file, max(0, size - END_BYTES), min(size, END_BYTES))
    at = tail.rfind(_END)
    while at >= 0:
        found = _archive(file, size, tail, at)
        if found is not None:
            return found
        at = tail.rfind(_END, 0, at)
    return None


def _archive(file: int, size: int, tail: bytes, at: int) -> Optional[Archive]:
    if len(tail) - at < _END_SIZE:
        return None
    number, table, offset, comment = struct.unpack_from("<HLLH", tail, at + 10)
    end = size - len(tail) + at
    if end + _END_SIZE + comment != size:
        return None
    begin = end
    locator = files.read_at(file, end - _LOCATOR_SIZE, _LOCATOR_SIZE) if end >= _LOCATOR_SIZE else b""
    if locator.startswith(_LOCATOR):
        begin = end - _LOCATOR_SIZE - _FAR_END_SIZE
        far = files.read_at(file, begin, _FAR_END_SIZE) if begin >= 0 else b""
        if not far.startswith(_FAR_END):
            return None
        number, table, offset = struct.unpack_from("<QQQ", far, 32)
    elif _IN_FAR_END in (table, offset):
        return None
    elif number == _NO_ROOM:
        number = UNKNOWN
    first = begin - table - offset
    if first < 0 or (number and files.read_at(file, first + offset, 4) != _ENTRY):
        return None
    if offset and files.read_at(file, first, 4) != _PART:
        return None
    return Archive(first, size, table, number)


def judged_by(tail: bytes, size: int) -> List[int]:
    """Where the reader of an archive reads four bytes, besides its end: at its first part and its table of contents.

    `tail`: the end of a file of `size` bytes. Nothing where that is no archive's.
    """
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at < _END_SIZE:
        return []
    table, offset = struct.unpack_from("<LL", tail, at + 12)
    end = at
    if at >= _LOCATOR_SIZE + _FAR_END_SIZE and tail.startswith(_LOCATOR, at - _LOCATOR_SIZE):
        end = at - _LOCATOR_SIZE - _FAR_END_SIZE
        table, offset = struct.unpack_from("<QQ", tail, end + 40)
    first = size - len(tail) + end - table - offset
    return [place for place in (first, first + offset) if 0 <= place <= size - 4]


def is_whole(file: int, size: int) -> bool:
    """Whether so many bytes of the file are one archive, with nothing before it."""
    found = last_archive(file, size)
    return found is not None and found.begin == 0


class NoChecksums(Exception):
    """All checksums are zero: the archive was written without them."""


def problem_of_parts(
    file: int,
    archive: Archive,
    check: Check,
    most_contents: int = MOST_CONTENTS,
    refuse: Callable[[List[str]], Optional[str]] = lambda names: None,
    may_lack: bool = False,
) -> Optional[str]:
    """The first part that is not as it was saved; None if all are. `refuse`: why these parts make no checkpoint.

    A small archive may contain terabytes: `check` is called after each piece, and an exception of it ends the reading.
    `may_lack`: raises NoChecksums if there are none.
    """
    import zipfile  # rarely needed

    try:
        with _Window(file, archive, most_contents) as window, zipfile.ZipFile(window) as opened:
            if may_lack and not any(part.CRC for part in opened.infolist()):
                raise NoChecksums
            return _problem(opened, archive.number, check, refuse)
    except files.Unfit:
        raise
    except OSError as error:
        return "it cannot be read: %s" % error.strerror
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError, ValueError, struct.error) as error:
        return "it is damaged: %s" % (str(error)[:200] or "it ends within a part")


class _Window(io.RawIOBase):
    """One archive of a file. Limits reads: the table of contents is read as a whole, and may claim any size."""

    def __init__(self, file: int, archive: Archive, most: int) -> None:
        super().__init__()
        self._file = file
        self._archive = archive
        self._most = most
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        size = self._archive.end - self._archive.begin
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: size}[whence]
        if base + offset < 0:
            raise ValueError("a part of it lies before its beginning")
        self._at = base + offset
        return self._at

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is not None and size > self._most:
            raise ValueError("its table of contents is too large")
        left = max(0, self._archive.end - self._archive.begin - self._at)
        most = self._most if size is None or size < 0 else size
        data = files.read_at(self._file, self._archive.begin + self._at, min(most, left))
        self._at += len(data)
        return data


def _problem(
    archive: ZipFile, number: int, check: Check, refuse: Callable[[List[str]], Optional[str]]
) -> Optional[str]:
    import zipfile

    parts = archive.infolist()
    if number not in (UNKNOWN, len(parts)):
        return "its table of contents has %d of %d parts" % (len(parts), number)
    refused = refuse([part.filename for part in parts])
    if refused is not None:
        return refused
    for part in parts:
        # no framework writes other kinds; those of `bzip2` and `lzma` would be expanded in memory without any limit
        if part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            return "%s in it is compressed in a way that no checkpoint uses" % part.filename[:200]
        if not _is_sound(archive, part, check):
            return "%s in it does not match its checksum" % part.filename[:200]
    return None


def _is_sound(archive: ZipFile, part: ZipInfo, check: Check) -> bool:
    import zipfile
    import zlib

    left = part.file_size
    try:
        with archive.open(part) as piece:
            while True:
                data = piece.read(_PIECE_BYTES)
                if not data:
                    return left == 0
                left -= len(data)
                check()
    except (zipfile.BadZipFile, zlib.error):
        return False
