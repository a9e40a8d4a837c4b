"""Reads objects of a git repository: from loose files and from packs (gitformat-pack(5)), each within a limit.

Nothing of the repository is executed, and nothing is written. `git` itself is not started: the configuration of a
repository that came from elsewhere can name programs for it.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from dtctl.folder import open_regular, read_regular

COMMIT_BYTES = 1 << 20
TREE_BYTES = 1 << 25
_MOST_PACKS = 2000
_MOST_ALTERNATES = 5
_MOST_DELTAS = 4096
_CHUNK = 1 << 16
_TYPES = {1: "commit", 2: "tree", 3: "blob", 4: "tag"}
_OFS_DELTA, _REF_DELTA = 6, 7
_IDX_HEADER = b"\xfftOc\x00\x00\x00\x02"


class Unreadable(Exception):
    """An object is missing, damaged or too large; the text is a clause such as `object 12ab is missing`."""


class TreeEntry(NamedTuple):
    name: bytes
    mode: int
    id: str


class Objects:
    """The objects of one repository, including those of its alternates. `close` it."""

    def __init__(self, directory: Path) -> None:
        """`directory`: the repository's `objects`."""
        self.directories = [directory, *islice(_alternates(directory), _MOST_ALTERNATES)]
        self._opened: list[mmap.mmap] = []

    def __enter__(self) -> Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
        self.__dict__.pop("_packs", None)

    def read(self, name: str, kind: str, limit_bytes: int) -> bytes:
        """The content of an object of this kind. Raises Unreadable."""
        try:
            found, data = self._find(name, limit_bytes, 0)
        except (OSError, ValueError, IndexError, struct.error, zlib.error) as error:
            raise Unreadable(f"object {name[:12]} cannot be read") from error
        if found != kind:
            raise Unreadable(f"object {name[:12]} is a {found}, not a {kind}")
        return data

    def commit(self, name: str) -> tuple[str, tuple[str, ...], str]:
        """The tree of a commit, its parents, and the first line of its message."""
        head, _, message = self.read(name, "commit", COMMIT_BYTES).partition(b"\n\n")
        lines = [line.partition(b" ") for line in head.split(b"\n")]
        trees = [value.decode("ascii", "replace") for key, _, value in lines if key == b"tree"]
        if not trees:
            raise Unreadable(f"commit {name[:12]} is damaged")
        parents = tuple(value.decode("ascii", "replace") for key, _, value in lines if key == b"parent")
        return trees[0], parents, message.partition(b"\n")[0].decode("utf-8", "replace")

    def tree(self, name: str) -> list[TreeEntry]:
        """The entries of a tree."""
        data, found, place, id_bytes = self.read(name, "tree", TREE_BYTES), [], 0, len(name) // 2
        try:
            while place < len(data):
                end = data.index(b"\0", place)
                mode, _, entry = data[place:end].partition(b" ")
                place = end + 1 + id_bytes
                found.append(TreeEntry(entry, int(mode, 8), data[end + 1 : place].hex()))
        except ValueError as error:
            raise Unreadable(f"tree {name[:12]} is damaged") from error
        return found

    def _find(self, name: str, limit_bytes: int, depth: int) -> tuple[str, bytes]:
        wanted = bytes.fromhex(name)
        for pack in self._packs:
            if (offset := pack.offset_of(wanted)) is not None:
                return self._packed(pack, offset, limit_bytes, depth)
        for directory in self.directories:
            with suppress(FileNotFoundError, NotADirectoryError):
                return _loose(directory / name[:2] / name[2:], limit_bytes)
        raise Unreadable(f"object {name[:12]} is missing")

    def _packed(self, pack: _Pack, offset: int, limit_bytes: int, depth: int) -> tuple[str, bytes]:
        deltas: list[bytes] = []
        while True:
            if depth + len(deltas) > _MOST_DELTAS:
                raise Unreadable("an object has too many deltas")
            kind, size, place = _entry_header(pack.data, offset)
            if size > limit_bytes:
                raise Unreadable("an object is too large")
            if kind in _TYPES:
                found, data = _TYPES[kind], _inflated(pack.data, place, size)
                break
            if kind == _OFS_DELTA:
                back, place = _offset(pack.data, place)
                if not 0 < back <= offset:
                    raise ValueError(back)
                base = offset - back
            elif kind == _REF_DELTA:
                name = bytes(pack.data[place : place + pack.id_bytes])
                place += pack.id_bytes
                deltas.append(_inflated(pack.data, place, size))
                own = pack.offset_of(name)
                if own is None:
                    found, data = self._find(name.hex(), limit_bytes, depth + len(deltas))
                    break
                offset = own
                continue
            else:
                raise ValueError(kind)
            deltas.append(_inflated(pack.data, place, size))
            offset = base
        for delta in reversed(deltas):
            data = _applied(data, delta, limit_bytes)
        return found, data

    @cached_property
    def _packs(self) -> list[_Pack]:
        packs: list[_Pack] = []
        for directory in self.directories:
            with suppress(OSError):
                for file in sorted((directory / "pack").glob("pack-*.idx"))[:_MOST_PACKS]:
                    with suppress(OSError, ValueError, struct.error):
                        packs.append(_Pack(self._mapped(file), file, self._mapped))
        return packs

    def _mapped(self, file: Path) -> mmap.mmap:
        descriptor = open_regular(file)
        try:
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(descriptor)
        self._opened.append(mapped)
        return mapped


class _Pack:
    """One pack, and its index of version 2. The pack itself is opened when an object of it is read."""

    def __init__(self, index: mmap.mmap, file: Path, mapped: Callable[[Path], mmap.mmap]) -> None:
        if index[:8] != _IDX_HEADER:
            raise ValueError(file)
        self._index = index
        self._file = file
        self._mapped = mapped
        self._fan = struct.unpack_from(">256I", index, 8)
        self._count = self._fan[255]
        # The name of the pack is a hash of the repository's kind.
        self.id_bytes = len(file.stem.removeprefix("pack-")) // 2
        if self.id_bytes not in (20, 32) or len(index) < 1032 + self._count * (self.id_bytes + 8):
            raise ValueError(file)

    @cached_property
    def data(self) -> mmap.mmap:
        return self._mapped(self._file.with_suffix(".pack"))

    def offset_of(self, name: bytes) -> int | None:
        if len(name) != self.id_bytes:
            return None
        low, high = self._fan[name[0] - 1] if name[0] else 0, self._fan[name[0]]
        if not low <= high <= self._count:
            raise ValueError(high)
        while low < high:
            middle = (low + high) // 2
            start = 1032 + middle * self.id_bytes
            found = self._index[start : start + self.id_bytes]
            if found == name:
                return self._offset(middle)
            low, high = (middle + 1, high) if found < name else (low, middle)
        return None

    def _offset(self, number: int) -> int:
        start = 1032 + self._count * (self.id_bytes + 4)
        (offset,) = struct.unpack_from(">I", self._index, start + 4 * number)
        if offset & 0x80000000:
            place = start + 4 * self._count + 8 * (offset & 0x7FFFFFFF)
            (offset,) = struct.unpack_from(">Q", self._index, place)
        return int(offset)


def _alternates(directory: Path, depth: int = 0) -> Iterator[Path]:
    """Other directories of objects, as `git clone --shared` names them."""
    with suppress(OSError):
        lines = read_regular(directory / "info" / "alternates", 1 << 16).splitlines()
        for line in [line for line in lines if line and not line.startswith(b"#")][:_MOST_ALTERNATES]:
            other = directory / os.fsdecode(line)
            yield other
            if depth < _MOST_ALTERNATES:
                yield from _alternates(other, depth + 1)


def _loose(file: Path, limit_bytes: int) -> tuple[str, bytes]:
    reads = zlib.decompressobj()
    descriptor = open_regular(file)
    with os.fdopen(descriptor, "rb") as opened:
        start = reads.decompress(opened.read(_CHUNK), 64)
        head, zero, data = start.partition(b"\0")
        kind, _, number = head.partition(b" ")
        size = int(number)
        if not zero or size < 0:
            raise ValueError(head)
        if size > limit_bytes:
            raise Unreadable("an object is too large")
        pieces, have = [data], len(data)
        while have <= size:
            more = reads.unconsumed_tail or opened.read(_CHUNK)
            if not more:
                break
            piece = reads.decompress(more, size + 1 - have)
            pieces.append(piece)
            have += len(piece)
            if reads.eof:
                break
    if have != size:
        raise ValueError(have)
    return kind.decode("ascii"), b"".join(pieces)


def _inflated(data: mmap.mmap, place: int, size: int) -> bytes:
    reads = zlib.decompressobj()
    pieces: list[bytes] = []
    have = 0
    while not reads.eof and have <= size:
        more = reads.unconsumed_tail
        if not more:
            more = data[place : place + _CHUNK]
            place += len(more)
            if not more:
                break
        piece = reads.decompress(more, size + 1 - have)
        pieces.append(piece)
        have += len(piece)
    if have != size:
        raise ValueError(have)
    return b"".join(pieces)


def _entry_header(data: mmap.mmap, place: int) -> tuple[int, int, int]:
    """The type of an entry of a pack, its size, and where what follows begins."""
    byte = data[place]
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 0x80:
        place += 1
        byte = data[place]
        size |= (byte & 0x7F) << shift
        shift += 7
        if shift > 64:
            raise ValueError(shift)
    return kind, size, place + 1


def _offset(data: mmap.mmap, place: int) -> tuple[int, int]:
    byte = data[place]
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        byte = data[place]
        value = (value + 1) << 7 | byte & 0x7F
        if value >> 64:
            raise ValueError(value)
    return value, place + 1


def _length(delta: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[place]
        place += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80 or shift > 64:
            return value, place


def _applied(base: bytes, delta: bytes, limit_bytes: int) -> bytes:
    source, place = _length(delta, 0)
    size, place = _length(delta, place)
    if source != len(base):
        raise ValueError(source)
    if size > limit_bytes:
        raise Unreadable("an object is too large")
    made = bytearray()
    while place < len(delta):
        code = delta[place]
        place += 1
        if code & 0x80:
            start, place = _number(delta, place, code, range(4))
            count, place = _number(delta, place, code >> 4, range(3))
            piece = base[start : start + (count or 0x10000)]
        elif code:
            piece = delta[place : place + code]
            place += code
        else:
            raise ValueError(code)
        made += piece
        if len(made) > size:
            raise ValueError(size)
    if len(made) != size:
        raise ValueError(size)
    return bytes(made)


def _number(delta: bytes, place: int, bits: int, numbers: range) -> tuple[int, int]:
    value = 0
    for number in numbers:
        if bits >> number & 1:
            value |= delta[place] << 8 * number
            place += 1
    return value, place
