"""The event files at the storage URLs of a run: copied as far as they have grown, and read as on hosts.

The copies stay in the cache of this machine from one command to the next, so that each byte is fetched once.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path

from dtctl.agent.metrics.reading import Reader
from dtctl.agent.records.kinds import checked
from dtctl.agent.records.metrics import MetricsResult
from dtctl.folder import PRIVATE, Folder
from dtctl.operations.run_record import RunRecord
from dtctl.operations.storage import EVERY_S, LIMIT_S, Object, Place, StorageError, label, within
from dtctl.paths import cache_directory

MARK = "tfevents"
_DEPTH = 3
_MOST_BYTES = 256 << 20
"""That one look fetches."""

_READ_S = 20.0
_KEPT_S = 30 * 86400.0
"""What nobody has looked at for so long is removed."""


def at_urls(record: RunRecord, run: str, tags: list[str] | None, points: int) -> dict[str, MetricsResult]:
    """By bucket, as a host would report it; what cannot be read is among the problems."""

    def wanted(tag: str) -> bool:
        return not tags or any(tag == pattern or fnmatchcase(tag, pattern) for pattern in tags)

    found: dict[str, MetricsResult] = {}
    for url in record.event_urls:
        answer = _at(url, run, wanted, points)
        before = found.get(label(url))
        found[label(url)] = answer if before is None else _together(before, answer)
    return found


def _at(url: str, run: str, wanted: Callable[[str], bool], points: int) -> MetricsResult:
    copies = Copies(url)
    problems = []
    try:
        left = within(LIMIT_S * 2, url, copies.refresh)
        if left:
            problems.append({"path": url, "problem": f"{left} bytes are not fetched yet; the next command continues"})
    except (StorageError, OSError) as error:
        problems.append({"path": url, "problem": str(error)[:4000]})
    reader = Reader([str(copies.files)], str(copies.directory) if copies.directory.is_dir() else None)
    reader.look_until_all_is_read(_READ_S)
    reader.keep()
    folders = [{**one, "dir": url, "identity": url} for one in reader.series(wanted, points)]
    result = {
        "run": run,
        "time": time.time(),
        "dirs": [url],
        "folders": folders,
        "problems": [*problems, *reader.problems()],
        "unread_bytes": reader.unread_bytes,
        "omitted": reader.omitted,
    }
    return checked(MetricsResult, result)


def _together(one: MetricsResult, other: MetricsResult) -> MetricsResult:
    return {
        **one,
        "dirs": [*one["dirs"], *other["dirs"]],
        "folders": [*one["folders"], *other["folders"]],
        "problems": [*one["problems"], *other["problems"]],
        "unread_bytes": one["unread_bytes"] + other["unread_bytes"],
        "omitted": one["omitted"] + other["omitted"],
    }


class Copies:
    """Of the event files at one URL, in `files`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._base = cache_directory() / "storage"
        self.directory = self._base / f"events-{hashlib.sha256(url.rstrip('/').encode()).hexdigest()[:32]}"
        self.files = self.directory / "files"

    def refresh(self) -> int:
        """Fetches what is new, once a minute at most; how many bytes are left. Raises StorageError, OSError."""
        with (
            Folder(self.directory, make=PRIVATE) as kept,
            kept.below(self.files.name, make=PRIVATE) as files,
            _locked(kept) as free,
        ):
            looked = kept.find("looked")
            age_s = time.time() - looked.st_mtime if looked is not None else EVERY_S
            if not free or 0 <= age_s < EVERY_S:
                return 0
            self._forget_old()
            place = Place(self._url)
            there = [one for one in place.objects(_DEPTH) if MARK in one.name.rpartition("/")[2]]
            left = 0
            for one, room in _with_room(there, files):
                with suppress(NotADirectoryError, IsADirectoryError):  # a bucket may have `a` and `a/b`
                    left += _copy(place, one, files, room)
            if not left:
                kept.replace("looked", b"")
        return left

    def _forget_old(self) -> None:
        for other in self._base.glob("events-*"):
            with suppress(OSError):
                if other != self.directory and time.time() - (other / "looked").stat().st_mtime > _KEPT_S:
                    shutil.rmtree(other)


def _with_room(there: list[Object], files: Folder) -> Iterator[tuple[Object, int]]:
    """How many bytes of each are fetched now; the newest first."""
    room = _MOST_BYTES
    for one in sorted(there, key=lambda each: each.time, reverse=True):
        have = _size(files.path / one.name)
        lacking = one.size - have if have <= one.size else one.size
        yield one, min(room, lacking)
        room = max(0, room - lacking)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _copy(place: Place, one: Object, files: Folder, room: int) -> int:
    """Adds what the object has grown by, so many bytes at most; how many are left. A shorter one begins anew."""
    directory, _, name = one.name.rpartition("/")
    with files.below(directory, make=PRIVATE) as folder:
        known = folder.find(name)
        if known is not None and known.st_size > one.size:
            folder.unlink(name)
            known = None
        have = known.st_size if known is not None else 0
        if room <= 0:
            return one.size - have
        with folder.append(name) as file:
            for _, data in place.pieces(one, have):
                file.write(data)
                have += len(data)
                room -= len(data)
                if room <= 0:
                    break
    return max(0, one.size - have)


@contextmanager
def _locked(kept: Folder) -> Iterator[bool]:
    """False while another command fetches the same."""
    with kept.append("lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
