"""The checkpoints at the storage URLs of a run, as the reader of directories judges them.

The directory that it reads has the names, sizes and times of all files of checkpoints, the content of indexes and of
the other small files, and holes in the place of tensors. One that is pulled or verified is brought here as a whole: to
stay, or to be read and removed again.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from dtctl.agent.checkpoints import formats, reading, verifying
from dtctl.agent.checkpoints.tensor_bundle import number_in
from dtctl.agent.host.budget import Budget
from dtctl.agent.records.checkpoints import Arrived, Checkpoint, CheckpointReport, FilePart, Pruned, Verified
from dtctl.agent.records.kinds import checked, made
from dtctl.folder import PRIVATE, Folder, temporary_folder
from dtctl.operations.checkpoints import Checkpoints, Found
from dtctl.operations.client import Progress, Report
from dtctl.operations.run_record import RunRecord
from dtctl.operations.storage import PATIENCE_S, Missing, Object, Place, label
from dtctl.operations.storage.cached import LIMIT_S, Cached

_DEPTH = 1
"""The depth of the search, as on hosts: the directory and its subdirectories."""

_MOST = 20
"""The most checkpoints that are reported and read."""

_MOST_CONTENT_BYTES = 32 << 20
_ENDS_BYTES = 66_000
"""The bytes read at each end of a .keras file: an archive has its table of contents there (APPNOTE.TXT, 4.3.16)."""

_MOST_PRUNED = 1000
_MOST_PRUNED_BYTES = 512 << 20
"""The most bytes of indexes that are read; checkpoints beyond that are not judged, and stay."""

_VERIFY_S = 3600.0
_sound: set[tuple[str, str, float, int]] = set()
"""Checkpoints that this command has already read in full: pruning lists them before it removes any."""

_LARGEST_NOTE = 4 << 20


def at_urls(record: RunRecord, *, fresh: bool = False) -> list[Checkpoints]:
    """The checkpoints at each of the run's storage URLs. A place that cannot be read is reported with the problem.

    Unless `fresh`, what was found within the last minute is believed.
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
    return checked(CheckpointReport, _look(place, _MOST, _MOST_CONTENT_BYTES))


def _look(place: Place, most: int, room: int) -> CheckpointReport:
    """`room`: bytes of indexes that are fetched."""
    found = list(place.objects(_DEPTH, lambda name: name == reading.ASIDE))
    with temporary_folder("dtctl-checkpoints-") as folder:
        _lay_out(place, _wanted(found, 2 * most), folder, room)
        report = reading.read_checkpoints(str(folder.path), time.monotonic() + LIMIT_S, most)
        for one in report["all"]:  # the files differ at the next query
            one["identity"] = one["identity"] and f"{one['time']}"
        text = json.dumps(report).replace(json.dumps(str(folder.path))[1:-1], place.url)
    problem = report["problem"] or (f"only the first {len(found)} objects were looked at" if place.cut else None)
    return {**json.loads(text), "identity": "", "problem": problem}  # type: ignore[typeddict-item]


def prune(url: str, keep: int, *, dry_run: bool, live: bool) -> Pruned:
    """Prunes a storage URL by the same rules as a host prunes a directory. `live`: a trainer may be saving there, which
    writes the file `checkpoint` itself.

    Raises StorageError.
    """
    place = Place(url, PATIENCE_S)
    report = _look(place, _MOST_PRUNED, _MOST_PRUNED_BYTES)
    removed: list[Checkpoint] = []
    kept: list[Checkpoint] = []

    def is_damaged(one: Checkpoint) -> bool:
        key = (url, one["prefix"], one["time"], one["size_bytes"])
        if key not in _sound and not verify(Found(url, one, (label(url),)), _VERIFY_S)["problems"]:
            _sound.add(key)
        return key not in _sound

    for below, staying, removable in verifying.divide(report, keep, is_damaged):
        state = f"{below}/{formats.STATE_FILE}".lstrip("/")
        text = place.whole(state).decode("utf-8", "surrogateescape")
        names = {one["prefix"]: one["prefix"].rpartition("/")[2] for one in removable}
        going = [one for one in removable if names[one["prefix"]] != formats.restored_name(text)]
        kept += [*staying, *(one for one in removable if one not in going)]
        removed += going
        if dry_run or not going:
            continue
        if text and not live:
            for one in going:
                text = formats.with_renamed(text.strip(), names[one["prefix"]], names[one["prefix"]])
            place.write(state, text.encode("utf-8", "surrogateescape"))
        for one in going:
            for each in reversed(objects_of(place, Found(url, one, ("",)))):
                place.remove(each.name)  # the index first, because it makes the checkpoint valid
    return made(
        Pruned,
        dir=url,
        removed=removed,
        kept=kept,
        freed_bytes=sum(one["size_bytes"] for one in removed),
        problem=report["problem"],
        listed=not live,
    )


def _wanted(objects: Sequence[Object], most: int) -> list[Object]:
    """The files of the newest checkpoints, with all that a directory of Orbax holds."""
    groups: dict[str, list[Object]] = {}
    marked = {one.name.rpartition("/")[0] for one in objects if one.name.rpartition("/")[2] in formats.ORBAX_MARKS}
    for one in objects:
        directory = one.name.rpartition("/")[0]
        if (prefix := directory if directory in marked else reading.prefix_of(one.name)) is not None:
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
        if _is_note(name) and one.size <= min(room, _LARGEST_NOTE if not name.endswith(".index") else room):
            small.append(one)
            room -= one.size
    contents = place.contents(small)
    for name, one in sorted(sizes.items(), key=lambda each: each[0].count("/")):
        if one in small and name not in contents:
            continue  # it was removed meanwhile
        # a bucket may have `a` and `a/b`; a missing object was removed meanwhile
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError, Missing):
            _write(folder, one, {0: contents[name]} if name in contents else _ends(place, one))


def _is_note(name: str) -> bool:
    return name.endswith(".index") or name.rpartition("/")[2] in formats.ORBAX_MARKS


def _ends(place: Place, one: Object) -> dict[int, bytes]:
    """Reads both ends of a .keras file; they show whether it is complete."""
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


def objects_of(place: Place, checkpoint: Found) -> list[Object]:
    """The files of a checkpoint as they are now, the index last."""
    directory, _, name = checkpoint.checkpoint["prefix"].rpartition("/")

    def belongs(one: Object) -> bool:
        above, _, file = one.name.rpartition("/")
        return above == directory and (file == name or reading.belongs(file, name))

    mine = [one for one in place.objects(1, lambda below: below != directory) if belongs(one)]
    return sorted(mine, key=lambda one: (one.name.endswith(".index"), one.name))


class Download:
    """The files of a checkpoint, as a host would send them. `have` of what is here: name -> version and size."""

    def __init__(
        self, found: Found, have: Sequence[dict[str, object]], put: Callable[[FilePart, bytes], None], report: Report
    ) -> None:
        self._found = found
        self._have = {str(one["name"]): one for one in have}
        self._put = put
        self._report = report
        self.sent_bytes = 0

    def all_of(self) -> list[Arrived]:
        """Raises StorageError, and what `put` does."""
        place, bucket = Place(self._found.directory, PATIENCE_S), label(self._found.directory)
        sent: list[Arrived] = []
        for one in objects_of(place, self._found):
            name = one.name.rpartition("/")[2]
            had = self._have.get(name)
            offset = int(str(had["size"])) if had is not None and had["identity"] == one.version else 0
            for at, data in place.pieces(one, offset):
                self._put({"name": name, "offset": at, "total": one.size, "identity": one.version}, data)
                self.sent_bytes += len(data)
                self._report(Progress(bucket, "pull", at + len(data), one.size, name))
            sent.append({"name": name, "size": one.size})
        return sent


def verify(checkpoint: Found, limit_s: float) -> Verified:
    """Reads every byte of the checkpoint, in a temporary directory. Raises StorageError, OSError."""
    begun = time.monotonic()
    verdict = verifying.Verdict()
    if checkpoint.checkpoint["kind"] == "orbax":
        verdict.problems = [checkpoint.checkpoint["problem"]] if checkpoint.checkpoint["problem"] else []
        verdict.unread = "of a checkpoint of Orbax it is only checked that the save has ended"
    else:
        verdict = _read(checkpoint, begun + limit_s)
    return made(
        Verified,
        dir=checkpoint.directory,
        prefix=checkpoint.checkpoint["prefix"],
        problems=[text[:4000] for text in verdict.problems],
        unread=verdict.unread,
        tensors=verdict.tensors,
        read_bytes=verdict.read_bytes,
        seconds=time.monotonic() - begun,
    )


def _read(checkpoint: Found, until: float) -> verifying.Verdict:
    place = Place(checkpoint.directory, PATIENCE_S)
    objects = objects_of(place, checkpoint)
    whole = verifying.Verdict()
    with temporary_folder("dtctl-verify-") as folder:
        folder.refuse_without_room(sum(one.size for one in objects))
        for one in objects:
            with folder.new(one.name.rpartition("/")[2]) as file:
                for _, data in place.pieces(one):
                    file.write(data)
                    whole.read_bytes += len(data)
                    if time.monotonic() > until:
                        whole.unread = "not all of it was read: there was no more time"
                        return whole
        path = str(folder.path / checkpoint.name)
        check = Budget(until, 0).check
        return (
            verifying.verify_keras(path, check) if re.match(formats.KERAS_NAME, path) else verifying.verify(path, check)
        )
