"""The checkpoints at the storage URLs of a run, as the reader of directories judges them."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from dtctl.agent.checkpoints import keras, orbax, reading
from dtctl.agent.checkpoints.tensor_bundle import number_in
from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.agent.records.kinds import checked, made
from dtctl.folder import PRIVATE, Folder, temporary_folder
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.storage import Object, Place, label
from dtctl.rooms.storage.cached import LIMIT_S, Cached
from dtctl.rooms.storage.errors import Missing

DEPTH = 1
"""The depth of the search, as on hosts: the directory and its subdirectories."""


_MOST = 20
"""The most checkpoints that are reported and read."""


_MOST_CONTENT_BYTES = 32 << 20


_ENDS_BYTES = 66_000
"""The bytes read at each end of a .keras file: an archive has its table of contents there (APPNOTE.TXT, 4.3.16)."""


_LARGEST_NOTE = 4 << 20


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
    """`room`: bytes of indexes that are fetched."""
    found = list(place.objects(DEPTH, lambda name: name == reading.ASIDE))
    with temporary_folder("dtctl-checkpoints-") as folder:
        _lay_out(place, _wanted(found, 2 * most), folder, room)
        report = reading.read_checkpoints(str(folder.path), time.monotonic() + LIMIT_S, most)
        for one in report["all"]:  # the files differ at the next query
            one["identity"] = one["identity"] and f"{one['time']}"
        text = json.dumps(report).replace(json.dumps(str(folder.path))[1:-1], place.url)
    problem = report["problem"] or (f"only the first {len(found)} objects were looked at" if place.cut else None)
    return {**json.loads(text), "identity": "", "problem": problem}  # type: ignore[typeddict-item]


def _wanted(objects: Sequence[Object], most: int) -> list[Object]:
    """The files of the newest checkpoints, with all that a directory of Orbax holds."""
    groups: dict[str, list[Object]] = {}
    marked = {one.name.rpartition("/")[0] for one in objects if one.name.rpartition("/")[2] in orbax.MARKS}
    for one in objects:
        directory = one.name.rpartition("/")[0]
        known = directory in marked or re.match(keras.NAME, one.name) or reading.is_tensorflows(one.name)
        if known and (prefix := directory if directory in marked else reading.prefix_of(one.name)) is not None:
            groups.setdefault(prefix, []).append(one)

    def newness(prefix: str) -> tuple[float, int, str]:
        return max(group.time for group in groups[prefix]), number_in(prefix) or 0, prefix

    newest = sorted(groups, key=newness, reverse=True)[:most]
    return [group for prefix in newest for group in groups[prefix]]


def _lay_out(place: Place, wanted: Iterable[Object], folder: Folder, room: int) -> None:
    """Writes indexes and other small files with their content, as far as there is room, the newest first."""
    small: list[Object] = []
    sizes = {one.name: one for one in wanted}
    for name, one in sizes.items():
        if is_note(name) and one.size <= min(room, _LARGEST_NOTE if not name.endswith(".index") else room):
            small.append(one)
            room -= one.size
    contents = place.contents(small)
    for name, one in sorted(sizes.items(), key=lambda each: each[0].count("/")):
        if one in small and name not in contents:
            continue  # it was removed meanwhile
        # a bucket may have `a` and `a/b`; a missing object was removed meanwhile
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError, Missing):
            _write(folder, one, {0: contents[name]} if name in contents else _ends(place, one))


def is_note(name: str) -> bool:
    return name.endswith(".index") or name.rpartition("/")[2] in orbax.MARKS


def _ends(place: Place, one: Object) -> dict[int, bytes]:
    """Reads both ends of a .keras file; they show whether it is complete."""
    if re.match(keras.NAME, one.name) is None:
        return {}
    last = max(0, one.size - _ENDS_BYTES)
    return {0: place.piece(one.name, 0, min(one.size, 4096)), last: place.piece(one.name, last, one.size)}


def _write(folder: Folder, one: Object, pieces: dict[int, bytes]) -> None:
    directory, _, name = one.name.rpartition("/")
    with folder.below(directory, make=PRIVATE) as inner, inner.new(name) as file:
        for offset, data in pieces.items():
            file.seek(offset)
            file.write(data)
        file.flush()
        os.ftruncate(file.fileno(), one.size)
        os.utime(file.fileno(), (one.time, one.time))
