"""Hashes of files that have not changed since an earlier scan, by what `stat` says of them.

A file that was changed less than two seconds before it was read is not remembered: a second change within the
resolution of time stamps would go unseen (git's "racy" entries). The cache may be lost, damaged or not writable at
any time; one that other users may write to is refused, for it decides what hosts take for the code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from dtctl.places import cache_directory, check_private, make_private, read_regular, replace_file

_VERSION = 3
"""Of what is judged as well: a file that was once taken for harmless is remembered as such."""
_LIMIT_BYTES = 1 << 28
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_SETTLED_NS = 2 * 10**9


class Fingerprints:
    """The cache of one code directory."""

    def __init__(self, code: Path, now_ns: int | None = None) -> None:
        self._code = str(code)
        self._file = cache_directory() / f"code-{hashlib.sha256(os.fsencode(code)).hexdigest()[:32]}.json"
        self._old = self._load()
        self._new: dict[str, list[Any]] = {}
        self._newest_ns = (time.time_ns() if now_ns is None else now_ns) - _SETTLED_NS

    def get(self, path: str, found: os.stat_result) -> str | None:
        """The file's SHA-256, when it is known and nothing about the file has changed."""
        entry = self._old.get(path)
        if entry is None or entry[:4] != _signature(found):
            return None
        self.put(path, found, entry[4])
        return str(entry[4])

    def put(self, path: str, found: os.stat_result, sha256: str) -> None:
        if max(found.st_mtime_ns, found.st_ctime_ns) < self._newest_ns:
            self._new[path] = [*_signature(found), sha256]

    def save(self) -> None:
        """Keeps what this scan has seen, and forgets the rest."""
        if self._new == self._old:
            return
        value = {"version": _VERSION, "code": self._code, "files": self._new}
        text = json.dumps(value, separators=(",", ":")).encode("ascii")
        with contextlib.suppress(OSError):  # without them the next scan only reads every file again
            make_private(self._file.parent)
            replace_file(self._file, _sum(text) + b"\n" + text, durable=False)

    def _load(self) -> dict[str, list[Any]]:
        check_private(self._file.parent)
        try:
            checksum, _, text = read_regular(self._file, _LIMIT_BYTES).partition(b"\n")
            value = json.loads(text) if checksum == _sum(text) else {}
            if value["version"] == _VERSION and value["code"] == self._code:
                return {path: entry for path, entry in value["files"].items() if _is_entry(entry)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass  # as if there were none
        return {}


def _signature(found: os.stat_result) -> list[int]:
    return [found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns]


def _is_entry(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) == 5 and isinstance(entry[4], str) and bool(_SHA256.match(entry[4]))


def _sum(text: bytes) -> bytes:
    """Nothing in a damaged file is believed: with a wrong hash `up` would refuse the same file for ever."""
    return hashlib.sha256(text).hexdigest().encode("ascii")
