"""Single checkpoints at storage URLs: read as a whole, verified, and removed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from dtctl.agent.checkpoints import formats, orbax, reading, state_file, verifying
from dtctl.agent.host.budget import Budget
from dtctl.agent.records.checkpoints import Checkpoint
from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.checkpoints.records import Arrived, FilePart, Pruned, Verified
from dtctl.folder import temporary_folder
from dtctl.operations.checkpoints import Found
from dtctl.operations.client import Progress, Report
from dtctl.rooms.storage import PATIENCE_S, Object, Place, label
from dtctl.rooms.storage.found import inspect

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
        going = [one for one in removable if names[one["prefix"]] != state_file.restored_name(text)]
        kept += [*staying, *(one for one in removable if one not in going)]
        removed += going
        if dry_run or not going:
            continue
        if text and not live:
            for one in going:
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
        verdict.unread = orbax.NO_CHECKSUMS
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
        return verifying.verify_format(path, formats.of(path), Budget(until, reading.MOST_NAMES))
