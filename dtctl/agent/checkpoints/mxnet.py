"""MXNet's files of parameters: `NAME-0003.params`, with `NAME-symbol.json` and `NAME-0003.states` beside them.

A list of arrays, each with its shape and type before its bytes, and their names at the end (src/ndarray/ndarray.cc,
NDArray::Save). It has no checksums: that it ends with the last name says that it is whole.
"""

from __future__ import annotations

import os
import re
import struct

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

NAME = r"(?s)(.+)\.params\Z"
EPOCH_IN_NAME = r"(?s).+-([0-9]{4})\.params\Z"
"""mx.callback.do_checkpoint and model.save_checkpoint number files by epochs."""
NO_CHECKSUMS = "MXNet's files have no checksums: only the lengths of the arrays were checked"

_LIST = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_BYTES = {0: 4, 1: 8, 2: 2, 3: 1, 4: 4, 5: 1, 6: 8, 7: 1, 8: 2, 9: 2, 10: 4, 11: 8, 12: 2}
"""Bytes of an element, by the number of its type (mshadow/base.h)."""
_MOST_ARRAYS = 100_000
_MOST_DIMENSIONS = 32
_LONGEST_NAME = 64 << 10


class _Cut(Exception):
    pass


class _Unknown(Exception):
    """An array of a kind whose length is not known here, such as a sparse one."""


class Foreign(Exception):
    """A file that only has the name of MXNet's."""


def problem(path: str, check: Callable[[], None] = lambda: None) -> Optional[str]:
    """Why the file cannot be whole; None when it may be. Raises OSError, Foreign, and what `check` does."""
    with files.opened(path) as file:
        size = os.fstat(file).st_size
        head = files.read_at(file, 0, 24)
        if not head.strip(b"\0"):
            return "it is empty" if not size else "it begins with zeros: its content was never written"
        if head[:8] != struct.pack("<Q", _LIST)[: len(head)]:
            raise Foreign
        try:
            end = _Reader(file, size, check).end()
        except _Unknown:
            return None
        except _Cut:
            return "it is cut short, or damaged: it has %d bytes" % size
    return None if end == size else "it is damaged: it ends at %d of %d bytes" % (end, size)


def companions(name: str) -> List[str]:
    """Files that belong to a file of parameters: the network, and the state of its trainer."""
    match = re.match(r"(?s)(.+)-[0-9]{4}\.params\Z", name)
    return [] if match is None else ["%s-symbol.json" % match.group(1), name[: -len("params")] + "states"]


class _Reader:
    def __init__(self, file: int, size: int, check: Callable[[], None]) -> None:
        self._file = file
        self._size = size
        self._check = check
        self._at = 16

    def end(self) -> int:
        """Where the last name ends."""
        arrays = self._numbers("<Q")[0]
        if arrays > _MOST_ARRAYS:
            raise _Unknown
        for _ in range(arrays):
            self._check()
            self._array()
        for _ in range(self._count()):
            self._check()
            length = self._numbers("<Q")[0]
            if length > _LONGEST_NAME:
                raise _Cut
            self._skip(length)
        return self._at

    def _count(self) -> int:
        names = self._numbers("<Q")[0]
        if names > _MOST_ARRAYS:
            raise _Cut
        return int(names)

    def _array(self) -> None:
        (magic,) = self._numbers("<I")
        if magic not in (_V1, _V2, _V3):
            raise _Unknown if magic <= _MOST_DIMENSIONS and magic else _Cut  # the oldest kind begins with its shape
        if magic != _V1 and self._numbers("<i")[0] != 0:
            raise _Unknown
        (dimensions,) = self._numbers("<i")
        if not -1 <= dimensions <= _MOST_DIMENSIONS:
            raise _Cut
        if dimensions == -1 or (dimensions == 0 and magic != _V3):
            return  # there is no array
        items = 1
        for length in self._numbers("<%dq" % dimensions):
            if not 0 <= length <= self._size:
                raise _Cut
            items *= length
        self._skip(8)  # the device
        width = _BYTES.get(self._numbers("<i")[0])
        if width is None:
            raise _Unknown
        self._skip(items * width)

    def _numbers(self, form: str) -> tuple[int, ...]:
        length = struct.calcsize(form)
        data = files.read_at(self._file, self._at, length)
        if len(data) < length:
            raise _Cut
        self._at += length
        return struct.unpack(form, data)

    def _skip(self, length: int) -> None:
        if self._at + length > self._size:
            raise _Cut
        self._at += length
