"""Files that are known to be secret and never sent, whatever their names in the code directory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from dtctl.places import read_regular

_LIMIT_BYTES = 1 << 20


class OwnSecrets:
    """The files of secrets and keys that a run is started with, and the directories of dtctl itself.

    A file is recognised by device and inode, because a hard link is another name of it, and by its content, because a
    copy is as secret.
    """

    def __init__(self, files: Collection[Path], directories: Iterable[Path]) -> None:
        self._names = {os.path.realpath(path) for path in files}
        self._identities = {_identity(found) for path in (*files, *directories) if (found := _stat(path))}
        self._hashes = {sha256 for path in files if (sha256 := _hash(path))}

    def include(self, found: os.stat_result, entry: os.DirEntry[str]) -> bool:
        """The entry is one of them, or a link to one."""
        if stat.S_ISLNK(found.st_mode):
            with suppress(OSError):  # a link that leads nowhere
                return _identity(entry.stat()) in self._identities
            return False
        return _identity(found) in self._identities

    def name(self, path: str) -> bool:
        """It is called what the user called it."""
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
    """None for an empty file: every empty file would be a copy of it."""
    try:
        content = read_regular(path, _LIMIT_BYTES)
    except (OSError, ValueError):
        return None
    return hashlib.sha256(content).hexdigest() if content.strip() else None
