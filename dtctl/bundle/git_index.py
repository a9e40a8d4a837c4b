"""Which files git tracks, read from its index without git: a repository from elsewhere can have git start programs.

The format: git's Documentation/gitformat-index.txt, versions 2 to 4.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from dtctl.places import read_regular

_LIMIT_BYTES = 1 << 26
"""Half a million files. Their names may take as much, and those of their directories: version 4 says little of each."""
_LONGEST_NAME = 4096
_HASHES = (20, 32)
"""Bytes of SHA-1 and SHA-256. The index does not say which."""
_HEADER = struct.Struct(">4sII")
_EXTENDED = 0x4000


class TrackedFiles:
    """Of the repository whose top is `top`, those below `prefix`, which is "" or ends with `/`; None: of none.

    An index that is missing or cannot be read has none. It is read when it is first asked for.
    """

    def __init__(self, top: Path | None, prefix: str = "") -> None:
        self._top = top
        self._prefix = os.fsencode(prefix)

    def have(self, path: str, is_directory: bool) -> bool:
        """This very file is tracked, or something in this directory."""
        files, directories = self._paths
        return path in (directories if is_directory else files)

    @cached_property
    def _paths(self) -> tuple[set[str], set[str]]:
        files: set[str] = set()
        if self._top is not None:
            with suppress(OSError, ValueError, struct.error):
                files = {
                    os.fsdecode(name[len(self._prefix) :])
                    for name in _names(_git_directory(self._top / ".git"))
                    if name.startswith(self._prefix)
                }
        directories: set[str] = set()
        size_bytes = 0
        for path in files:
            while (path := path.rpartition("/")[0]) and path not in directories:
                directories.add(path)
                if (size_bytes := size_bytes + len(path)) > _LIMIT_BYTES:
                    return set(), set()
        return files, directories


def _git_directory(git: Path) -> Path:
    """Of a worktree or a submodule `.git` is a file that names it."""
    try:
        text = read_regular(git, _LONGEST_NAME)
    except IsADirectoryError:
        return git
    return git.parent / os.fsdecode(text.removeprefix(b"gitdir:").strip())


def _names(directory: Path) -> set[bytes]:
    data = read_regular(directory / "index", _LIMIT_BYTES)
    names, base = _parsed(data)
    if base:  # a split index, which may leave out some of its base: too many are no harm
        names |= _parsed(read_regular(directory / f"sharedindex.{base}", _LIMIT_BYTES))[0]
    return names


def _parsed(data: bytes) -> tuple[set[bytes], str]:
    """Names, and the hash of the index that this one adds to. Raises ValueError, struct.error."""
    for hash_bytes in _HASHES:
        with suppress(ValueError, struct.error):
            names, end, size_bytes = set(), _HEADER.size, 0
            for name, end in _entries(data, hash_bytes):  # noqa: B007 (the last end is meant)
                names.add(name)
                if (size_bytes := size_bytes + len(name)) > _LIMIT_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            return names - {b""}, _base(data, end, hash_bytes)
    raise ValueError("not an index of git")


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[bytes, int]]:
    """The name of each, and where it ends."""
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError(signature)
    name, place = b"", _HEADER.size
    for _ in range(count):
        start = place
        place += 40 + hash_bytes
        (flags,) = struct.unpack_from(">H", data, place)
        place += 4 if flags & _EXTENDED and version > 2 else 2
        kept, last = 0, name
        if version == 4:
            stripped, place = _number(data, place)
            kept = len(name) - stripped
        end = data.index(b"\0", place)
        name = last[:kept] + data[place:end]
        if kept < 0 or len(name) > _LONGEST_NAME or (name < last and name):
            raise ValueError(name)
        place = end + 1 if version == 4 else start + ((end - start) // 8 + 1) * 8
        yield name, place


def _number(data: bytes, place: int) -> tuple[int, int]:
    """As in pack files: seven bits a byte, the highest first, and each further byte adds one."""
    (byte,) = struct.unpack_from("B", data, place)
    value = byte & 0x7F
    while byte & 0x80:
        place += 1
        (byte,) = struct.unpack_from("B", data, place)
        value = ((value + 1) << 7) | (byte & 0x7F)
        if value > _LONGEST_NAME:
            raise ValueError(value)
    return value, place + 1


def _base(data: bytes, place: int, hash_bytes: int) -> str:
    """By the extension `link`; "" without one."""
    while place < len(data) - hash_bytes:
        name, size = struct.unpack_from(">4sI", data, place)
        if place + 8 + size > len(data) - hash_bytes:
            raise ValueError(name)
        if name == b"link":
            base = data[place + 8 : place + 8 + hash_bytes]
            return base.hex() if any(base) else ""
        place += 8 + size
    return ""
