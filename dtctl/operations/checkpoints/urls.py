"""The checkpoints at the storage URLs of a run, as the reader of directories judges them.

The directory that it reads has the names, sizes and times of all files of checkpoints, the content of indexes and of
the other small files, and holes in the place of tensors.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from dtctl.agent.checkpoints import formats, reading
from dtctl.agent.checkpoints.tensor_bundle import number_in
from dtctl.agent.records.checkpoints import CheckpointReport
from dtctl.agent.records.kinds import InvalidValue, checked, made
from dtctl.folder import PRIVATE, Folder, temporary_folder
from dtctl.operations.checkpoints import Checkpoints
from dtctl.operations.run_record import RunRecord
from dtctl.operations.storage import EVERY_S, LIMIT_S, Object, Place, StorageError, label, within
from dtctl.paths import cache_directory

_DEPTH = 1
"""As on hosts: the directory, and those in it."""

_MOST = 20
"""Checkpoints that are reported, and looked into."""

_MOST_CONTENT_BYTES = 32 << 20
_ENDS_BYTES = 66_000
"""Of a file of Keras: where an archive has its table of contents (APPNOTE.TXT, 4.3.16)."""

_LARGEST_NOTE = 4 << 20

_QUICK_S = 2.0
"""A problem that is found so soon is looked for again by the next command: it may be solved by then."""


def at_urls(record: RunRecord, *, fresh: bool = False) -> list[Checkpoints]:
    """Each of the run's storage URLs for checkpoints. A place that cannot be read is reported with the problem.

    Unless `fresh`, what was found within the last minute is believed.
    """
    return [_at(url, fresh=fresh) for url in record.checkpoint_urls]


def _at(url: str, *, fresh: bool) -> Checkpoints:
    kept = _Kept(url)
    report = None if fresh else kept.read()
    if report is None:
        began = time.monotonic()
        try:
            report = within(LIMIT_S, url, lambda: look(Place(url)))
        except (StorageError, OSError) as error:
            told = str(error).replace("\n", "; ")[:4000]
            report = made(CheckpointReport, dir=url, newest_complete=None, incomplete=[], all=[], problem=told)
        if report["problem"] is None or time.monotonic() - began > _QUICK_S:
            kept.write(report)
    return Checkpoints(label(url), report)


def look(place: Place) -> CheckpointReport:
    """Raises StorageError."""
    found = list(place.objects(_DEPTH, lambda name: name == reading.ASIDE))
    with temporary_folder("dtctl-checkpoints-") as folder:
        _lay_out(place, _wanted(found), folder)
        report = reading.inspect(str(folder.path), time.monotonic() + LIMIT_S, _MOST)
        text = json.dumps(report).replace(json.dumps(str(folder.path))[1:-1], place.url)
    return checked(CheckpointReport, {**json.loads(text), "identity": ""})


def _wanted(found: Sequence[Object]) -> list[Object]:
    """The files of the newest checkpoints, with all that a directory of Orbax holds."""
    groups: dict[str, list[Object]] = {}
    marked = {one.name.rpartition("/")[0] for one in found if one.name.rpartition("/")[2] in formats.ORBAX_MARKS}
    for one in found:
        directory = one.name.rpartition("/")[0]
        if (prefix := directory if directory in marked else reading.prefix_of(one.name)) is not None:
            groups.setdefault(prefix, []).append(one)

    def newness(prefix: str) -> tuple[float, int, str]:
        return max(one.time for one in groups[prefix]), number_in(prefix) or 0, prefix

    newest = sorted(groups, key=newness, reverse=True)[: 2 * _MOST]
    return [one for prefix in newest for one in groups[prefix]]


def _lay_out(place: Place, wanted: Iterable[Object], folder: Folder) -> None:
    """Indexes and what else is small with their content, as far as there is room; the newest first."""
    small: list[str] = []
    room = _MOST_CONTENT_BYTES
    sizes = {one.name: one for one in wanted}
    for name, one in sizes.items():
        if _is_note(name) and one.size <= min(room, _LARGEST_NOTE if not name.endswith(".index") else room):
            small.append(name)
            room -= one.size
    contents = place.contents(small)
    for name, one in sorted(sizes.items(), key=lambda each: each[0].count("/")):
        if name in small and name not in contents:
            continue  # it has been removed meanwhile
        pieces = {0: contents[name]} if name in contents else _ends(place, one)
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            _write(folder, one, pieces)  # a bucket may have `a` and `a/b`


def _is_note(name: str) -> bool:
    return name.endswith(".index") or name.rpartition("/")[2] in formats.ORBAX_MARKS


def _ends(place: Place, one: Object) -> dict[int, bytes]:
    """Of a file of Keras its two ends, by which it is known whether it is whole."""
    if re.match(formats.KERAS_NAME, one.name) is None:
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


class _Kept:
    """What was found at a URL, for the commands of the next minute."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._folder = cache_directory() / "storage"
        self._name = hashlib.sha256(url.encode()).hexdigest()[:32] + ".json"

    def read(self) -> CheckpointReport | None:
        try:
            with Folder(self._folder) as folder:
                kept = json.loads(folder.read(self._name, 1 << 20))
            age_s = time.time() - float(kept["time"])
            report = checked(CheckpointReport, kept["report"])
        except (OSError, ValueError, KeyError, TypeError, InvalidValue):
            return None
        return report if report["dir"].rstrip("/") == self._url.rstrip("/") and 0 <= age_s < EVERY_S else None

    def write(self, report: CheckpointReport) -> None:
        with suppress(OSError), Folder(self._folder, make=PRIVATE) as folder:
            content = json.dumps({"time": time.time(), "report": report}).encode()
            folder.replace(self._name, content, durable=False)
