"""Single checkpoints at storage URLs: read as a whole, verified, and removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dtctl.agent.checkpoints import formats, reading, state_file, verifying
from dtctl.agent.host.budget import Budget
from dtctl.agent.records.checkpoints import Checkpoint
from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.checkpoints.records import Arrived, FilePart, Pruned, Verified
from dtctl.folder import PRIVATE, temporary_folder
from dtctl.operations.checkpoints import Found
from dtctl.operations.client import Progress, Report
from dtctl.rooms.storage import PATIENCE_S, Object, Place, StorageError, label
from dtctl.rooms.storage.found import inspect
from dtctl.rooms.storage.searching import Group, Search

_MOST_PRUNED = 1000
_MOST_PRUNED_BYTES = 512 << 20
"""The most bytes of indexes that are read; checkpoints beyond that are not judged, and stay."""

_VERIFY_S = 3600.0
_sound: set[tuple[str, str, float, int]] = set()
"""Checkpoints that this command has already read in full: pruning lists them before it removes any."""


def prune(url: str, keep: int, *, dry_run: bool, live: bool) -> Pruned:
    """Prunes a storage URL by the same rules as a host prunes a directory. `live`: a trainer may be saving there, which
    writes the file `checkpoint` itself.

    Raises StorageError.
    """
    place = Place(url, PATIENCE_S)
    report = inspect(place, _MOST_PRUNED, _MOST_PRUNED_BYTES)
    removed: list[Checkpoint] = []
    kept: list[Checkpoint] = []

    def is_damaged(one: Checkpoint) -> bool:
        key = (url, one["prefix"], one["time"], one["size_bytes"])
        if key not in _sound and not verify(Found(url, one, (label(url),)), _VERIFY_S)["problems"]:
            _sound.add(key)
        return key not in _sound

    for below, staying, removable in verifying.divide(report, keep, is_damaged):
        state = f"{below}/{state_file.STATE_FILE}".lstrip("/")
        text = place.whole(state).decode("utf-8", "surrogateescape")
        names = {one["prefix"]: one["prefix"].rpartition("/")[2] for one in removable}
        named = {_pointed(place, below, formats.BY_KIND[kind], text) for kind in {one["kind"] for one in removable}}
        going = [one for one in removable if names[one["prefix"]] not in named]
        kept += [*staying, *(one for one in removable if one not in going)]
        removed += going
        if dry_run or not going:
            continue
        if text and not live and any(one["kind"] == "tensorflow" for one in going):
            for one in (each for each in going if each["kind"] == "tensorflow"):
                text = state_file.with_renamed(text.strip(), names[one["prefix"]], names[one["prefix"]])
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


def _pointed(place: Place, below: str, row: formats.Format, state: str) -> str | None:
    """The checkpoint that the pointer of its format names to be restored. `state`: the file `checkpoint`."""
    if row is formats.TENSORFLOW:
        return state_file.restored_name(state)
    if row.pointer is None:
        return None
    return place.whole(f"{below}/{row.pointer}".lstrip("/")).decode("utf-8", "replace").strip()


def objects_of(place: Place, checkpoint: Found) -> list[Object]:
    """The files of a checkpoint as they are now, last the one that says that it is whole."""
    prefix, row = checkpoint.checkpoint["prefix"], formats.BY_KIND[checkpoint.checkpoint["kind"]]
    if isinstance(row, formats.DirectoryFormat):
        search = Search(place)
        inside = search.whole(Group(prefix, row, [])).objects
        if search.cut:
            raise StorageError(f"{checkpoint.path} has too many directories to be read from this machine")
        objects = {one.name.removeprefix(f"{prefix}/"): one for one in inside}
        return [objects[name] for name in row.in_order(sorted(objects))]
    directory, _, name = prefix.rpartition("/")
    beside = row.companions(name)

    def belongs(one: Object) -> bool:
        file = one.name.rpartition("/")[2]
        return file == name or file in beside or (row is formats.TENSORFLOW and reading.belongs(file, name))

    mine = [one for one in place.inside(f"{directory}/" if directory else "")[0] if belongs(one)]
    return sorted(mine, key=lambda one: (one.name.endswith((".index", f"/{name}")) or one.name == name, one.name))


def _name_in(checkpoint: Found, one: Object) -> str:
    """The name under which an object is sent: its path in a checkpoint that is a directory."""
    if formats.BY_KIND[checkpoint.checkpoint["kind"]].is_directory:
        return one.name[len(checkpoint.checkpoint["prefix"]) + 1 :]
    return one.name.rpartition("/")[2]


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
            name = _name_in(self._found, one)
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
            above, _, last = one.name[len(checkpoint.checkpoint["prefix"]) - len(checkpoint.name) :].rpartition("/")
            with folder.below(above, make=PRIVATE) as inner, inner.new(last) as file:
                for _, data in place.pieces(one):
                    file.write(data)
                    whole.read_bytes += len(data)
                    if time.monotonic() > until:
                        whole.unread = "not all of it was read: there was no more time"
                        return whole
        path = str(folder.path / checkpoint.name)
        return verifying.verify_format(path, formats.of(path), Budget(until, reading.MOST_NAMES))
