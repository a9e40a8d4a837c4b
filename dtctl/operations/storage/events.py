"""The scalars at the storage URLs of a run, read as on hosts from copies of the event files (copies.py)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from dtctl.agent.metrics.reading import Reader
from dtctl.agent.records.kinds import checked
from dtctl.agent.records.metrics import FolderPoints, MetricsResult
from dtctl.errors import DtctlError
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams
from dtctl.operations.run_record import RunRecord
from dtctl.operations.storage import StorageError, label
from dtctl.operations.storage.cached import EVERY_S
from dtctl.operations.storage.copies import Copies

_READ_S = 20.0
_TICK_S = 0.5


def at_urls(record: RunRecord, run: str, tags: Sequence[str], points: int) -> dict[str, MetricsResult]:
    """By bucket, as a host would report it; what cannot be read is among the problems."""
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
    reader.keep()
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


def _together(one: MetricsResult, other: MetricsResult) -> MetricsResult:
    return {
        **one,
        "dirs": [*one["dirs"], *other["dirs"]],
        "folders": [*one["folders"], *other["folders"]],
        "problems": [*one["problems"], *other["problems"]],
        "unread_bytes": one["unread_bytes"] + other["unread_bytes"],
        "omitted": one["omitted"] + other["omitted"],
    }


def follow(
    urls: Sequence[str],
    tags: Sequence[str],
    points: int,
    streams: Streams,
    ended: threading.Event,
    put: Callable[[str, Sequence[FolderPoints], bool], None],
) -> None:
    """`put` gets a bucket, its new points, and whether these are the first; until `ended`."""
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


def keep_up(urls: Sequence[str], streams: Streams, ended: threading.Event, each: Callable[[str, Copies], None]) -> None:
    """Fetches what is new once a minute, until `ended`, and then once more; `each` is called when it is here."""
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
