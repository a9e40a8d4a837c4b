"""Answers what is asked about single checkpoints: read them, send them, remove old ones.

Only what the host has told of itself can be named: a directory of the run, and a checkpoint that was found in it.
"""

from __future__ import annotations

import hashlib
import os
import time

from ..host import files
from ..host.budget import Budget, Spent
from ..host.errors import Refused
from ..records.checkpoints import is_part
from ..records.words import brief
from . import keras_files, orbax, pruning, reading, verifying
from .tensor_bundle import file_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Mapping

    from ..records.checkpoints import FilePart, FileSent, Pruned, Verified
    from ..records.requests import CheckpointPlace, FetchRequest, Had, PruneRequest, VerifyRequest
    from .places import Run

    Alive = Callable[[], None]
    Send = Callable[[FilePart, bytes], None]

PART_BYTES = 1 << 20
PRUNE_LIMIT_S = 600.0


class _Time(Budget):
    """Raises what `alive` does, too: whoever has asked may be gone."""

    def __init__(self, limit_s: float, alive: Alive) -> None:
        super().__init__(time.monotonic() + limit_s, reading.MOST_NAMES)
        self._alive = alive

    def check(self) -> None:
        self._alive()
        super().check()


def verify(run: Run, request: VerifyRequest, alive: Alive) -> List[Verified]:
    budget = _Time(request["limit_s"], alive)
    return [_verified(run, one, budget) for one in request["wanted"]]


def _verified(run: Run, wanted: CheckpointPlace, budget: Budget) -> Verified:
    path = _path(run, wanted)
    begun = time.monotonic()
    verdict = verifying.Verdict()
    if keras_files.NAME.match(path):
        try:
            verdict.problems = keras_files.damage(path, budget.check)
        except Spent as spent:
            verdict.unread = "not all of it was read: %s" % spent
        verdict.read_bytes = file_size(path) or 0
        if path.endswith(".h5") and verdict.sound:
            verdict.unread = "an HDF5 file has no checksums: only its length was checked"
    elif os.path.isdir(path):
        found = orbax.problem(path)
        verdict.problems = [found] if found is not None else []
        verdict.unread = "of a checkpoint of Orbax it is only checked that the save has ended"
    else:
        verdict = verifying.verify(path, budget.check)
    return {
        "dir": wanted["dir"],
        "prefix": wanted["prefix"],
        "problems": [brief(text) for text in verdict.problems],
        "unread": None if verdict.unread is None else brief(verdict.unread),
        "tensors": verdict.tensors,
        "read_bytes": verdict.read_bytes,
        "seconds": time.monotonic() - begun,
    }


def fetch(run: Run, request: FetchRequest, put: Send) -> List[FileSent]:
    path = _path(run, request["of"])
    if os.path.isdir(path):
        raise Refused("bad_request", "%s is a directory of Orbax's, which is not sent" % ascii(path)[:200])
    return send_files(path, request, put)


def prune(run: Run, request: PruneRequest, live: bool, alive: Alive) -> List[Pruned]:
    for directory in request["dirs"]:
        if directory not in run.known:  # what a command line names may be anybody's, a model to begin from
            raise Refused("bad_request", "no setting of this run names %s" % ascii(directory)[:200])
    budget = _Time(PRUNE_LIMIT_S, alive)
    return [pruning.prune(path, request["keep"], request["dry_run"], live, budget) for path in request["dirs"]]


def _path(run: Run, wanted: CheckpointPlace) -> str:
    _refuse_others(run, wanted["dir"])
    parts = wanted["prefix"].split("/")
    if len(parts) > 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Refused("bad_request", "%s is not the name of a checkpoint" % ascii(wanted["prefix"])[:200])
    if len(parts) == 2:
        base = os.open(wanted["dir"], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.close(files.directory(parts[0], base))  # no link of another user's
        finally:
            os.close(base)
    return os.path.join(wanted["dir"], wanted["prefix"])


def _refuse_others(run: Run, directory: str) -> None:
    if directory not in run.places():
        raise Refused("bad_request", "%s is no directory of this run's checkpoints" % ascii(directory)[:200])


def send_files(path: str, request: FetchRequest, put: Send) -> List[FileSent]:
    """In the order in which they were asked for. `path`: the checkpoint's. Raises Refused for one that changes."""
    had = {one["name"]: one for one in request["have"]}
    place, name = os.path.split(path)
    for one in request["files"]:
        if one != name and not is_part(name, one):
            raise Refused("bad_request", "%s is no file of %s" % (ascii(one)[:200], ascii(name)[:200]))
    there = [one for one in request["files"] if os.path.lexists(os.path.join(place, one))]
    return [_send(os.path.join(place, one), one, had, put) for one in there]


def _send(path: str, name: str, had: Mapping[str, Had], put: Send) -> FileSent:
    opened = files.descriptor(path)
    try:
        found = os.fstat(opened)
        identity = "%d-%d-%d" % (found.st_ino, found.st_size, found.st_mtime_ns)
        before = had.get(name)
        skip = before["size"] if before is not None and before["identity"] == identity else 0
        skip = min(skip, found.st_size)
        digest, offset = hashlib.sha256(), 0
        while offset < found.st_size or not offset:
            data = files.read_at(opened, offset, min(PART_BYTES, found.st_size - offset))
            if not data and found.st_size:
                raise Refused("internal", "%s became shorter while it was read" % path)
            digest.update(data)
            end = offset + len(data)
            if end > skip or end == found.st_size:
                start = max(offset, skip)
                put(
                    {"name": name, "offset": start, "total": found.st_size, "identity": identity},
                    data[start - offset :],
                )
            offset = end
            if not data:
                break
        return {"name": name, "size": found.st_size, "sha256": digest.hexdigest()}
    finally:
        os.close(opened)
