"""Reads objects of a git repository: from loose files and from packs (gitformat-pack(5)), each within a limit.

Nothing of the repository is executed, and nothing is written. `git` itself is not started: the configuration of a
repository that came from elsewhere can name programs for it.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
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
_MOST_PACKS = 200
"""Each takes up to two descriptors; git repacks from 50 on (gc.autoPackLimit)."""
_MOST_ALTERNATES = 5
_MOST_DELTAS = 4096
_MORE_BYTES = 1 << 20
"""All deltas of an object together may be this much larger than twice its limit."""
_LONGEST_NAME = 4096
_LARGEST_MODE = 0o177777
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

    def __init__(self, directory: Path, until: float | None = None) -> None:
        """`directory`: the repository's `objects`. `until`: the end of reading, on the monotonic clock."""
        self.directories = [directory, *islice(_alternates(directory), _MOST_ALTERNATES)]
        self._opened: list[mmap.mmap] = []
        self._until = until

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
            found, data = self._find(name, limit_bytes)
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
        """The entries of a tree. Raises Unreadable also for a name that git does not check out."""
        data, found, offset, id_bytes = self.read(name, "tree", TREE_BYTES), list[TreeEntry](), 0, len(name) // 2
        try:
            while offset < len(data):
                end = data.index(b"\0", offset)
                mode, _, entry = data[offset:end].partition(b" ")
                offset = end + 1 + id_bytes
                number = int(mode, 8)
                if offset > len(data) or not 0 < number <= _LARGEST_MODE or not _is_name(entry):
                    raise ValueError(entry)
                found.append(TreeEntry(entry, number, data[end + 1 : offset].hex()))
        except ValueError as error:
            raise Unreadable(f"tree {name[:12]} is damaged") from error
        return found

    def _find(self, name: str, limit_bytes: int) -> tuple[str, bytes]:
        """The kind and the content of an object, whose deltas may lead from one pack to another."""
        deltas: list[bytes] = []
        seen: set[tuple[_Pack, int]] = set()
        held_bytes = 0
        found = self._located(bytes.fromhex(name))
        while True:
            self._check_time()
            if found is None:
                kind, data = self._unpacked(name, limit_bytes)
                break
            pack, offset = found
            if found in seen or len(seen) > _MOST_DELTAS:
                raise Unreadable("an object has too many deltas")
            seen.add(found)
            number, size, start = _entry_header(pack.data, offset)
            held_bytes += size
            if size > limit_bytes or held_bytes > 2 * limit_bytes + _MORE_BYTES:
                raise Unreadable("an object is too large")
            if number in _TYPES:
                kind, data = _TYPES[number], _inflated(pack.data, start, size)
                break
            if number == _OFS_DELTA:
                back, start = _distance(pack.data, start)
                if not 0 < back <= offset:
                    raise ValueError(back)
                found = pack, offset - back
            elif number == _REF_DELTA:
                base = bytes(pack.data[start : start + pack.id_bytes])
                start += pack.id_bytes
                name, own = base.hex(), pack.offset_of(base)
                found = (pack, own) if own is not None else self._located(base)
            else:
                raise ValueError(number)
            deltas.append(_inflated(pack.data, start, size))
        while deltas:
            data = _applied(data, deltas.pop(), limit_bytes, self._check_time)
        return kind, data

    def _located(self, name: bytes) -> tuple[_Pack, int] | None:
        """The pack that has the object, and where."""
        for pack in self._packs:
            if (offset := pack.offset_of(name)) is not None:
                return pack, offset
        return None

    def _unpacked(self, name: str, limit_bytes: int) -> tuple[str, bytes]:
        for directory in self.directories:
            with suppress(FileNotFoundError, NotADirectoryError):
                return _loose(directory / name[:2] / name[2:], limit_bytes)
        raise Unreadable(f"object {name[:12]} is missing")

    def _check_time(self) -> None:
        if self._until is not None and time.monotonic() > self._until:
            raise Unreadable("reading the repository takes too long")

    @cached_property
    def _packs(self) -> list[_Pack]:
        packs: list[_Pack] = []
        files: list[Path] = []
        for directory in self.directories:
            with suppress(OSError):
                files += islice((directory / "pack").glob("pack-*.idx"), _MOST_PACKS + 1)
        if len(files) > _MOST_PACKS:
            raise Unreadable(f"the repository has more than {_MOST_PACKS} packs")
        for file in files:
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
            (offset,) = struct.unpack_from(">Q", self._index, start + 4 * self._count + 8 * (offset & 0x7FFFFFFF))
        return int(offset)


def _is_name(name: bytes) -> bool:
    return name.lower() not in (b"", b".", b"..", b".git") and b"/" not in name and len(name) <= _LONGEST_NAME


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


def _inflated(data: mmap.mmap, offset: int, size: int) -> bytes:
    reads = zlib.decompressobj()
    pieces: list[bytes] = []
    have = 0
    while not reads.eof and have <= size:
        more = reads.unconsumed_tail
        if not more:
            more = data[offset : offset + _CHUNK]
            offset += len(more)
            if not more:
                break
        piece = reads.decompress(more, size + 1 - have)
        pieces.append(piece)
        have += len(piece)
    if have != size:
        raise ValueError(have)
    return b"".join(pieces)


def _entry_header(data: mmap.mmap, offset: int) -> tuple[int, int, int]:
    """The type of an entry of a pack, its size, and where what follows begins."""
    byte = data[offset]
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 0x80:
        offset += 1
        byte = data[offset]
        size |= (byte & 0x7F) << shift
        shift += 7
        if shift > 64:
            raise ValueError(shift)
    return kind, size, offset + 1


def _distance(data: mmap.mmap, offset: int) -> tuple[int, int]:
    """How far back the base of a delta is, and where the delta begins."""
    byte = data[offset]
    value = byte & 0x7F
    while byte & 0x80:
        offset += 1
        byte = data[offset]
        value = (value + 1) << 7 | byte & 0x7F
        if value >> 64:
            raise ValueError(value)
    return value, offset + 1


def _length(delta: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80 or shift > 64:
            return value, offset


def _applied(base: bytes, delta: bytes, limit_bytes: int, check_time: Callable[[], None]) -> bytes:
    source, offset = _length(delta, 0)
    size, offset = _length(delta, offset)
    if source != len(base):
        raise ValueError(source)
    if size > limit_bytes:
        raise Unreadable("an object is too large")
    made = bytearray()
    while offset < len(delta):
        check_time()
        code = delta[offset]
        offset += 1
        if code & 0x80:
            start, offset = _number(delta, offset, code, range(4))
            count, offset = _number(delta, offset, code >> 4, range(3))
            piece = base[start : start + (count or 0x10000)]
        elif code:
            piece = delta[offset : offset + code]
            offset += code
        else:
            raise ValueError(code)
        made += piece
        if len(made) > size:
            raise ValueError(size)
    if len(made) != size:
        raise ValueError(size)
    return bytes(made)


def _number(delta: bytes, offset: int, bits: int, numbers: range) -> tuple[int, int]:
    value = 0
    for number in numbers:
        if bits >> number & 1:
            value |= delta[offset] << 8 * number
            offset += 1
    return value, offset
