"""The scalars at the storage URLs of a run, read as on hosts from copies of the event files.

The copies are fetched as far as the files have grown, and stay in the cache of this machine from one command to the
next, so that each byte is fetched once.
"""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.rooms.metrics.reading import Reader
from dtctl.agent.rooms.metrics.records import FolderPoints, MetricsResult
from dtctl.errors import DtctlError
from dtctl.folder import PRIVATE, Folder
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams
from dtctl.operations.run_record import RunRecord
from dtctl.paths import cache_directory, forget_old
from dtctl.rooms.metrics.operation import Put, ScalarsAtUrls
from dtctl.rooms.storage import Object, Place, StorageError, label, within
from dtctl.rooms.storage.cached import EVERY_S, LIMIT_S, Cached, url_hash

_READ_S = 20.0
_TICK_S = 0.5


def at_urls(record: RunRecord, run: str, tags: Sequence[str], points: int) -> dict[str, MetricsResult]:
    """The scalars by bucket, in the form of a host's report; read errors are among its problems."""
    found: dict[str, MetricsResult] = {}
    for url in record.event_urls:
        answer = _at(url, run, tags, points)
        before = found.get(label(url))
        found[label(url)] = answer if before is None else _together(before, answer)
    return found


def _at(url: str, run: str, tags: Sequence[str], points: int) -> MetricsResult:
    copies = Copies(url)
    problems = []
    try:
        if left := copies.refresh():
            problems.append({"path": url, "problem": f"{left} bytes are not fetched yet; the next command continues"})
    except (StorageError, OSError) as error:
        problems.append({"path": url, "problem": str(error)[:4000]})
    reader = copies.reader()
    reader.look_until_all_is_read(_READ_S)
    result = {
        "run": run,
        "time": time.time(),
        "dirs": [url],
        "folders": _of_url(url, reader.series(_wanted(tags), points)),
        "problems": [*problems, *reader.problems()],
        "unread_bytes": reader.unread_bytes,
        "omitted": reader.omitted,
    }
    return checked(MetricsResult, result)


def _wanted(tags: Sequence[str]) -> Callable[[str], bool]:
    return lambda tag: not tags or any(tag == pattern or fnmatchcase(tag, pattern) for pattern in tags)


def _of_url(url: str, folders: Iterable[FolderPoints]) -> list[FolderPoints]:
    return [{**one, "dir": url, "identity": url} for one in folders]


def _together(metrics_result: MetricsResult, other: MetricsResult) -> MetricsResult:
    return {
        **metrics_result,
        "dirs": [*metrics_result["dirs"], *other["dirs"]],
        "folders": [*metrics_result["folders"], *other["folders"]],
        "problems": [*metrics_result["problems"], *other["problems"]],
        "unread_bytes": metrics_result["unread_bytes"] + other["unread_bytes"],
        "omitted": metrics_result["omitted"] + other["omitted"],
    }


def follow(
    urls: Sequence[str],
    tags: Sequence[str],
    points: int,
    streams: Streams,
    ended: threading.Event,
    put: Put,
) -> None:
    """Reports new points until `ended`."""
    readers: dict[str, Reader] = {}

    def read(url: str, copies: Copies) -> None:
        first = url not in readers
        reader = readers.setdefault(url, copies.reader())
        reader.look_until_all_is_read(_READ_S)
        found = reader.series(_wanted(tags), points) if first else reader.new_points(_wanted(tags))
        if first:
            reader.forget_new()
        put(label(url), _of_url(url, found), first)

    keep_up(urls, streams, ended, read)


SCALARS = ScalarsAtUrls(at_urls, follow)


def keep_up(urls: Sequence[str], streams: Streams, ended: threading.Event, each: Callable[[str, Copies], None]) -> None:
    """Fetches new bytes once a minute until `ended`, and then once more; `each` is called after each fetch."""
    failing: set[str] = set()
    while not streams.ended:
        last = ended.is_set()
        for url in urls:
            copies = Copies(url)
            try:
                copies.refresh_all(streams, fresh=last)
                if url in failing:
                    failing.discard(url)
                    streams.put(Reconnected(label(url)))
            except (StorageError, OSError) as error:
                if url not in failing:
                    failing.add(url)
                    streams.put(Disconnected(label(url), DtctlError(str(error), hint=getattr(error, "hint", ""))))
            each(url, copies)
        if last:
            return
        until = time.monotonic() + EVERY_S
        while time.monotonic() < until and not (streams.ended or ended.is_set()):
            ended.wait(_TICK_S)


_MARK = "tfevents"
_DEPTH = 3
_FETCH_S = 20.0
_MOST_BYTES = 256 << 20
"""The most bytes that one query fetches, unless the time limit comes first."""


class Copies:
    """Copies, in `files`, of the event files at one URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._base = cache_directory() / "storage"
        self.directory = self._base / f"events-{url_hash(url)}"
        self.files = self.directory / "files"
        self._listing = Cached(url, "events", _checked_listing)

    def reader(self) -> Reader:
        return Reader([str(self.files)])

    def refresh_all(self, streams: Streams, *, fresh: bool = False) -> None:
        """Repeats `refresh` as long as it fetches more."""
        left, before = self.refresh(fresh=fresh), None
        while left and left != before and not streams.ended:
            left, before = self.refresh(), left

    def refresh(self, *, fresh: bool = False) -> int:
        """Fetches new bytes by a listing of the last minute; returns how many are left. Raises StorageError, OSError.

        `fresh`: by a new listing.
        """
        return within(LIMIT_S + 2 * _FETCH_S, self._url, lambda: self._refresh(fresh))

    def _refresh(self, fresh: bool) -> int:
        with (
            Folder(self.directory, make=PRIVATE) as kept,
            kept.below(self.files.name, make=PRIVATE) as files,
            _locked(kept) as free,
        ):
            if not free:
                return 0
            forget_old(self._base)
            kept.replace("looked", b"")
            listed, problem = self._listing.find(_event_files, fresh=fresh)
            lacking, left = list(_with_room(_objects(listed or []), files)), 0
            if any(room for _, room in lacking):
                left = _copy_all(Place(self._url), lacking, files)
            if problem:
                raise StorageError(problem)
        return left


def _event_files(place: Place) -> list[Any]:
    return [list(astuple(one)) for one in place.objects(_DEPTH) if _MARK in one.name.rpartition("/")[2]]


def _objects(listing: list[Any]) -> list[Object]:
    return [Object(str(name), int(size), float(when), str(version)) for name, size, when, version in listing]


def _checked_listing(kept: Any) -> list[Any]:
    try:
        return [list(astuple(one)) for one in _objects(kept)]
    except (TypeError, ValueError):
        raise InvalidValue("a listing", kept) from None


def _with_room(there: list[Object], files: Folder) -> Iterator[tuple[Object, int]]:
    """How many bytes of each file are fetched now; the newest files come first."""
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


def _copy_all(place: Place, lacking: Iterable[tuple[Object, int]], files: Folder) -> int:
    left, until = 0, time.monotonic() + _FETCH_S
    for one, room in lacking:
        with suppress(NotADirectoryError, IsADirectoryError):  # a bucket may have `a` and `a/b`
            left += _copy(place, one, files, room, until)
    return left


def _copy(place: Place, one: Object, files: Folder, room: int, until: float) -> int:
    """Appends new bytes of the object, at most `room`; returns how many are left. A shorter object is copied again."""
    directory, _, name = one.name.rpartition("/")
    with files.below(directory, make=PRIVATE) as folder:
        known = folder.find(name)
        if known is not None and known.st_size > one.size:
            folder.unlink(name)
            known = None
        have = known.st_size if known is not None else 0
        if room <= 0 or time.monotonic() > until:
            return one.size - have
        with folder.append(name) as file:
            for _, data in place.pieces(one, have):
                file.write(data)
                have += len(data)
                room -= len(data)
                if room <= 0 or time.monotonic() > until:
                    break
    return max(0, one.size - have)


@contextmanager
def _locked(kept: Folder) -> Iterator[bool]:
    """Whether the copies could be locked; another command may be fetching them."""
    with kept.append("lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
