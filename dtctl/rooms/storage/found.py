"""The checkpoints at the storage URLs of a run, as the reader of directories judges them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from dtctl.agent.checkpoints import formats, reading
from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.agent.records.kinds import checked, made
from dtctl.folder import PRIVATE, Folder, temporary_folder
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.storage import Object, Place, label
from dtctl.rooms.storage.cached import LIMIT_S, Cached
from dtctl.rooms.storage.peeking import Peek, TooLarge
from dtctl.rooms.storage.searching import Group, Search

_MOST = 20
"""The most checkpoints that are reported and read."""


_MOST_CONTENT_BYTES = 32 << 20


def at_urls(record: RunRecord, *, fresh: bool = False) -> list[Checkpoints]:
    """The checkpoints at each of the run's storage URLs. A place that cannot be read is reported with the problem.

    Unless `fresh`, what was found within the last minute is accepted.
    """
    return [_at(url, fresh=fresh) for url in record.checkpoint_urls]


def _at(url: str, *, fresh: bool) -> Checkpoints:
    kept = Cached(url, "checkpoints", lambda content: checked(CheckpointReport, content))
    report, problem = kept.find(look, fresh=fresh)
    if report is None:
        report = made(CheckpointReport, dir=url, newest_complete=None, incomplete=[], all=[])
    return Checkpoints(label(url), {**report, "dir": url.rstrip("/"), "problem": problem or report["problem"]})


def look(place: Place) -> CheckpointReport:
    """Raises StorageError."""
    return checked(CheckpointReport, inspect(place, _MOST, _MOST_CONTENT_BYTES))


def inspect(place: Place, most: int, room: int) -> CheckpointReport:
    """`room`: bytes that are fetched to judge the checkpoints."""
    search = Search(place)
    groups = search.run()
    newest, too_large = _wholes(place, groups[: 2 * most])
    with temporary_folder("dtctl-checkpoints-") as folder:
        left_out = [*too_large, *_lay_out(place, newest, folder, room)]
        report = reading.read_checkpoints(str(folder.path), time.monotonic() + LIMIT_S, most)
        for one in report["all"]:  # the files differ at the next query
            one["identity"] = one["identity"] and f"{one['time']}"
        text = json.dumps(report).replace(json.dumps(str(folder.path))[1:-1], place.url)
    problem = report["problem"] or (f"only the first {search.count} objects were looked at" if search.cut else None)
    if left_out:
        problem = problem or f"{left_out[0]} is too large to be judged from here"
    if search.arriving:
        problem = problem or f"the push of {min(search.arriving)} has not ended; the same command resumes it"
    return {**json.loads(text), "identity": "", "problem": problem}  # type: ignore[typeddict-item]


def _wholes(place: Place, groups: Sequence[Group]) -> tuple[list[Group], list[str]]:
    """Returns the groups with all objects of those that are directories, and the names of those that have too many."""
    wholes: list[Group] = []
    too_large: list[str] = []
    for group in groups:
        search = Search(place)  # with limits of its own
        wholes.append(search.whole(group))
        if search.cut:
            wholes.pop()
            too_large.append(group.prefix)
    return wholes, too_large


def _lay_out(place: Place, groups: Sequence[Group], folder: Folder, room: int) -> list[str]:
    """Writes the objects as files of their sizes, with as much of their content as their readers need. Returns the
    checkpoints that are left out, because that would be more than there is room for; the newest ones come first.
    """
    peeks = {
        one.name: Peek(one.name, one.size, is_single=not group.row.is_directory)
        for group in groups
        for one in (*group.objects, *group.beside)
    }
    left_out: dict[str, None] = {}
    gone: set[str] = set()
    done = False
    while not done:
        wanted: list[tuple[str, int, int]] = []
        for group in groups:
            if group.prefix in left_out:
                continue
            lacking = _lacking(group, peeks, gone)
            cost = None if lacking is None else sum(end - begin for _, begin, end in lacking)
            if lacking is None or cost is None or cost > room:
                left_out[group.prefix] = None
                continue
            room -= cost
            wanted += lacking
        for (name, begin, _), data in zip(wanted, place.ranges(wanted), strict=True):
            if data is None:
                gone.add(name)
            else:
                peeks[name].add(begin, data)
        done = not wanted
    for group in groups:
        if group.prefix in left_out and group.row is not formats.TENSORFLOW:
            continue
        for one in sorted((*group.objects, *group.beside), key=lambda each: each.name.count("/")):
            if one.name not in gone:  # a bucket may have `a` and `a/b`
                with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
                    _write(folder, one, peeks[one.name].pieces)
        if group.row.is_directory:
            with suppress(OSError):
                os.utime(folder.path / group.prefix, (group.time, group.time))
    return [name for name in left_out if not name.endswith(".index")]


def _lacking(group: Group, peeks: Mapping[str, Peek], gone: Collection[str]) -> list[tuple[str, int, int]] | None:
    """What is still to be read of its objects; None if that is too much."""
    try:
        return [
            (one.name, begin, end)
            for one in (*group.objects, *group.beside)
            if one.name not in gone
            for begin, end in peeks[one.name].lacking()
        ]
    except TooLarge:
        return None


def _write(folder: Folder, one: Object, pieces: Mapping[int, bytes]) -> None:
    directory, _, name = one.name.rpartition("/")
    with folder.below(directory, make=PRIVATE) as inner, inner.new(name) as file:
        for offset, data in pieces.items():
            file.seek(offset)
            file.write(data)
        file.flush()
        os.ftruncate(file.fileno(), one.size)
        os.utime(file.fileno(), (one.time, one.time))
