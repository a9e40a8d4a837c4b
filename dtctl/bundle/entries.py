"""The entries of the code directory, inspected by descriptors; each entry that cannot be sent is an error."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dtctl.errors import PreflightError
from dtctl.folder import make_private, read_regular, replace_file
from dtctl.paths import cache_directory, check_private

_SPARSE_BYTES = 1 << 30
_SPARSE_PART = 16
"""A file larger than _SPARSE_BYTES is sparse if its disk space is less than its size divided by this."""
IGNORE_HINT = "or leave it out with a line in .dtctlignore (or .gitignore)"
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def check_file(found: os.stat_result, place: str) -> None:
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        what = _KINDS.get(kind, "not a regular file")
        raise PreflightError(f"{place} is {what} and cannot be sent", hint=f"remove it, {IGNORE_HINT}")
    if found.st_size > _SPARSE_BYTES and found.st_blocks * 512 < found.st_size // _SPARSE_PART:
        raise PreflightError(
            f"{place} is a sparse file and cannot be sent",
            detail=f"its size is {found.st_size} bytes, and it takes {found.st_blocks * 512} on the disk",
            hint=f"remove it, {IGNORE_HINT}",
        )


def open_directory(name: str | Path, place: str, parent: int | None = None, setting: str = "trainer.code") -> int:
    """A descriptor of the directory. Below the top, a link to a directory is not followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if parent is None else os.O_NOFOLLOW)
    try:
        return os.open(name, flags, dir_fd=parent)
    except NotADirectoryError as error:
        raise PreflightError(f"{place} is not a directory", hint=f"{setting} names a directory") from error
    except FileNotFoundError as error:
        raise PreflightError(f"there is no directory {place}", hint=f"{setting} names a directory") from error
    except OSError as error:
        raise _cannot_list(place, error) from error


def listed(descriptor: int, place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(descriptor) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise _cannot_list(place, error) from error


def _cannot_list(place: str, error: OSError) -> PreflightError:
    return PreflightError(f"cannot list {place}", detail=str(error.strerror), hint=f"chmod u+rx {place}, {IGNORE_HINT}")


def stat_entry(entry: os.DirEntry[str], place: str) -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        raise PreflightError(f"cannot read {place}", detail=str(error.strerror), hint="try again") from error


def target_of(entry: os.DirEntry[str], parent: int, place: str) -> str:
    try:
        target = os.readlink(entry.name, dir_fd=parent)
    except OSError as error:
        raise PreflightError(f"cannot read {place}", detail=str(error.strerror), hint="try again") from error
    check_utf8(target, f"what the link {place} leads to")
    return target


def check_utf8(text: str, what: str) -> None:
    """Raises PreflightError unless the text is UTF-8, as hosts get it, both on the disk and in this Python's locale."""
    try:
        if os.fsencode(text).decode("utf-8") == text:
            return
    except UnicodeDecodeError as error:
        raise PreflightError(f"{what} is not UTF-8", hint=f"rename it, {IGNORE_HINT}") from error
    raise PreflightError(
        f"{what} cannot be read as UTF-8 here",
        detail=f"Python takes the names of files for {sys.getfilesystemencoding()} by your locale; hosts get UTF-8",
        hint=f"PYTHONUTF8=1 before the command, {IGNORE_HINT}",
    )


def printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


_LIMIT_BYTES = 1 << 20


class OwnSecrets:
    """The files of secrets and keys with which a run is started, and the directories of dtctl itself.

    A file is recognised by device and inode, because a hard link is another name of it, and by its content, because a
    copy is as secret.
    """

    def __init__(self, files: Collection[Path], directories: Iterable[Path]) -> None:
        self._names = {os.path.realpath(path) for path in files}
        self._identities = {_identity(found) for path in (*files, *directories) if (found := _stat(path))}
        self._hashes = {sha256 for path in files if (sha256 := _hash(path))}

    def include(self, found: os.stat_result, entry: os.DirEntry[str]) -> bool:
        """Whether the entry is one of them, or a link to one."""
        if stat.S_ISLNK(found.st_mode):
            with suppress(OSError):  # a broken link
                return _identity(entry.stat()) in self._identities
            return False
        return _identity(found) in self._identities

    def name(self, path: str) -> bool:
        """Whether the user gave this path for one of them."""
        return os.path.realpath(path) in self._names

    def hold(self, sha256: str) -> bool:
        return sha256 in self._hashes


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):
        return None


def _hash(path: Path) -> str | None:
    """The file's SHA-256; None for an empty file, because every empty file would be a copy of it."""
    try:
        content = read_regular(path, _LIMIT_BYTES)
    except (OSError, ValueError):
        return None
    return hashlib.sha256(content).hexdigest() if content.strip() else None


_VERSION = 4
"""The version of the cache's format and of the rules of content: files that they found harmless are cached as such."""
_CACHE_BYTES = 1 << 28
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SETTLED_NS = 2 * 10**9


class Fingerprints:
    """The cached fingerprints of the files of one directory of code or data, to which other rules apply."""

    def __init__(self, code: Path, now_ns: int | None = None, *, data: bool = False) -> None:
        self._code = str(code)
        kind, digest = "data" if data else "code", hashlib.sha256(os.fsencode(code)).hexdigest()[:32]
        self._file = cache_directory() / f"{kind}-{digest}.json"
        self._old = self._load()
        self._new: dict[str, list[Any]] = {}
        self._newest_ns = (time.time_ns() if now_ns is None else now_ns) - _SETTLED_NS

    def get(self, path: str, found: os.stat_result) -> str | None:
        """The file's SHA-256, if it is cached and the file has not changed."""
        entry = self._old.get(path)
        if entry is None or entry[:4] != _signature(found):
            return None
        self.put(path, found, entry[4])
        return str(entry[4])

    def put(self, path: str, found: os.stat_result, sha256: str) -> None:
        if max(found.st_mtime_ns, found.st_ctime_ns) < self._newest_ns:
            self._new[path] = [*_signature(found), sha256]

    def save(self, *, partly: bool = False) -> None:
        """Saves what this scan has found, and forgets the rest unless the scan was interrupted."""
        files = {**self._old, **self._new} if partly else self._new
        if files == self._old:
            return
        value = {"version": _VERSION, "code": self._code, "files": files}
        text = json.dumps(value, separators=(",", ":")).encode("ascii")
        with contextlib.suppress(OSError):  # without the cache the next scan only reads every file again
            make_private(self._file.parent)
            replace_file(self._file, _sum(text) + b"\n" + text, durable=False)

    def _load(self) -> dict[str, list[Any]]:
        check_private(self._file.parent)
        try:
            checksum, _, text = read_regular(self._file, _CACHE_BYTES).partition(b"\n")
            value = json.loads(text) if checksum == _sum(text) else {}
            if value["version"] == _VERSION and value["code"] == self._code:
                return {path: entry for path, entry in value["files"].items() if _is_entry(entry)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # as without a cache
        return {}


def _signature(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 5 and isinstance(entry[4], str) and bool(_SHA256.match(entry[4]))


def _sum(text: bytes) -> bytes:
    """The checksum of the cache.

    A damaged cache is ignored: with a wrong hash `up` would refuse the same file forever.
    """
    return hashlib.sha256(text).hexdigest().encode("ascii")
