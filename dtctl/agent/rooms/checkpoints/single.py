"""Handles requests about single checkpoints: reads, sends and removes them.

Only reported checkpoints can be named: a directory of the run, and a checkpoint in it.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import ExitStack, suppress

from ...checkpoints import formats, reading, verifying
from ...checkpoints.reading import MOST_NAMES
from ...checkpoints.repair import OpenDirectory
from ...host import files
from ...host.budget import Budget, Spent
from ...host.errors import Refused
from ...records.checkpoints import MOST_STORED, Checkpoint
from ...records.values import brief
from .records import (
    CheckpointPath,
    FetchRequest,
    FilePart,
    FileSent,
    Had,
    Pruned,
    PruneRequest,
    Verified,
    VerifyRequest,
    is_part,
    is_path_inside,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Mapping, Union

    from ...checkpoints.directories import BeforeFirstRun, Run

    Owner = Union[Run, BeforeFirstRun]

    Alive = Callable[[], None]
    Send = Callable[[FilePart, bytes], None]


PART_BYTES = 1 << 20
PRUNE_LIMIT_S = 600.0
LIST_LIMIT_S = 30.0


class _Time(Budget):
    """A budget that also raises the exceptions of `alive`: the controller may have disconnected."""

    def __init__(self, limit_s: float, alive: Alive) -> None:
        super().__init__(time.monotonic() + limit_s, reading.MOST_NAMES)
        self._alive = alive

    def check(self) -> None:
        self._alive()
        super().check()


def verify(run: Owner, request: VerifyRequest, alive: Alive) -> List[Verified]:
    budget = _Time(request["limit_s"], alive)
    return [_verified(run, one, budget) for one in request["wanted"]]


def _verified(run: Owner, wanted: CheckpointPath, budget: Budget) -> Verified:
    path = _path(run, wanted)
    begun = time.monotonic()
    verdict = verifying.verify_format(path, formats.of(path), budget, part=wanted["part"])
    return {
        "dir": wanted["dir"],
        "prefix": wanted["prefix"],
        "problems": [brief(text) for text in verdict.problems],
        "unread": None if verdict.unread is None else brief(verdict.unread),
        "tensors": verdict.tensors,
        "read_bytes": verdict.read_bytes,
        "seconds": time.monotonic() - begun,
    }


def fetch(run: Owner, request: FetchRequest, put: Send) -> List[FileSent]:
    path = _path(run, request["of"])
    return send_directory(path, request, put) if os.path.isdir(path) else send_files(path, request, put)


def prune(run: Owner, request: PruneRequest, live: bool, alive: Alive) -> List[Pruned]:
    for directory in request["dirs"]:
        if directory not in run.known:  # a command line may name another user's model to begin from
            raise Refused("bad_request", "no setting of this run names %s" % ascii(directory)[:200])
    budget = _Time(PRUNE_LIMIT_S, alive)
    return [prune_directory(path, request["keep"], request["dry_run"], live, budget) for path in request["dirs"]]


def _path(run: Owner, wanted: CheckpointPath) -> str:
    if wanted["dir"] not in run.places():
        raise Refused("bad_request", "%s is no directory of this run's checkpoints" % ascii(wanted["dir"])[:200])
    return existing(wanted["dir"], wanted["prefix"])


def existing(directory: str, prefix: str) -> str:
    """The path of a checkpoint, which lies where checkpoints are searched for. Raises Refused, OSError."""
    below, name = os.path.split(prefix)
    if name in ("", ".", "..") or "\0" in name or not formats.is_searched(below):
        raise Refused("bad_request", "%s is not the name of a checkpoint" % ascii(prefix)[:200])
    if below:
        os.close(files.directory_below(directory, below))  # no link of another user's
    return os.path.join(directory, prefix)


def send_files(path: str, request: FetchRequest, put: Send) -> List[FileSent]:
    """Sends files, in the order of the request. `path`: the checkpoint's. Raises Refused if a file changes."""
    had = {one["name"]: one for one in request["have"]}
    place, name = os.path.split(path)
    row = formats.of(path)
    beside = row.companions(name)
    for file in request["files"]:
        if file != name and file not in beside and not (row is formats.TENSORFLOW and is_part(name, file)):
            raise Refused("bad_request", "%s is no file of %s" % (ascii(file)[:200], ascii(name)[:200]))
    there = [file for file in request["files"] if os.path.lexists(os.path.join(place, file))]
    return [_send(place, one, had, put) for one in there]


def send_directory(path: str, request: FetchRequest, put: Send) -> List[FileSent]:
    """Sends all files of a checkpoint that is a directory. Raises Refused if it is none, or one changes."""
    row = formats.of(path)
    if not isinstance(row, formats.DirectoryFormat):
        raise Refused("bad_request", "%s is no directory of a checkpoint" % ascii(path)[:200])
    budget = Budget(time.monotonic() + LIST_LIMIT_S, reading.MOST_NAMES)
    try:
        found = row.files(path, budget)
    except Spent as spent:
        raise Refused("bad_request", "%s cannot be listed: %s" % (ascii(path)[:200], spent)) from None
    odd = next((name for name in found if not is_path_inside(name)), None)
    if odd is not None or len(found) > MOST_STORED:
        why = "has %d files" % len(found) if odd is None else "has a file %s" % ascii(odd)[:200]
        raise Refused("bad_request", "%s %s, and is not sent" % (ascii(path)[:200], why))
    had = {one["name"]: one for one in request["have"]}
    return [_send(path, name, had, put) for name in found if not request["files"] or name in request["files"]]


def _send(place: str, name: str, had: Mapping[str, Had], put: Send) -> FileSent:
    """Links of other users on the way are not followed: they may have taken a directory's place since."""
    path, (below, _, last) = os.path.join(place, name), name.rpartition("/")
    with ExitStack() as stack:
        at = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, at)
        for step in below.split("/") if below else ():
            at = files.directory(step, at)
            stack.callback(os.close, at)
        file = stack.enter_context(files.opened(last, at=at))
        found = os.fstat(file)
        identity = "%d-%d-%d" % (found.st_ino, found.st_size, found.st_mtime_ns)
        before = had.get(name)
        skip = min(before["size"], found.st_size) if before is not None and before["identity"] == identity else 0
        digest, offset = hashlib.sha256(), 0
        while offset < found.st_size or not offset:
            data = files.read_at(file, offset, min(PART_BYTES, found.st_size - offset))
            if not data and found.st_size:
                raise Refused("internal", "%s became shorter while it was read" % path)
            digest.update(data)
            end = offset + len(data)
            if end > skip or end == found.st_size:
                start = max(offset, skip)
                part: FilePart = {"name": name, "offset": start, "total": found.st_size, "identity": identity}
                put(part, data[start - offset :])
            offset = end
            if not data:
                break
        return {"name": name, "size": found.st_size, "sha256": digest.hexdigest()}


MOST_LOOKED_AT = 10_000


def prune_directory(directory: str, keep: int, dry_run: bool, live: bool, budget: Budget) -> Pruned:
    """`live`: a trainer may be saving there, which writes the file `checkpoint` itself."""
    report = reading.read_checkpoints(directory, budget.until, MOST_LOOKED_AT)
    answer: Pruned = {
        "dir": directory,
        "removed": [],
        "kept": [],
        "freed_bytes": 0,
        "problem": report["problem"],
        "listed": not live,
    }

    def is_damaged(one: Checkpoint) -> bool:
        row = formats.BY_KIND[one["kind"]]
        return bool(verifying.verify_format(os.path.join(directory, one["prefix"]), row, budget).problems)

    for below, kept, removed in verifying.divide(report, keep, is_damaged):
        answer["kept"] += kept
        try:
            with OpenDirectory.of(directory, below, budget.until) as place:
                _remove(place, removed, answer, dry_run, live)
        except OSError as error:
            answer["problem"] = brief("%s: %s" % (error.filename or directory, error.strerror))
    return answer


def _remove(place: OpenDirectory, removed: List[Checkpoint], answer: Pruned, dry_run: bool, live: bool) -> None:
    named = {place.pointed(formats.BY_KIND[kind]) for kind in {one["kind"] for one in removed}}
    named |= place.linked()
    going: List[Checkpoint] = []
    for one in removed:
        (answer["kept"] if os.path.basename(one["prefix"]) in named else going).append(one)
    ours = [os.path.basename(one["prefix"]) for one in going if one["kind"] == "tensorflow"]
    if not dry_run and not live and ours:
        place.rename_in_state({name: name for name in ours})
    with os.scandir(place.descriptor) as listed:
        names = [entry.name for _, entry in zip(range(MOST_NAMES), listed)]
    for one in going:
        if one["kind"] != "tensorflow":
            _remove_other(place, one, answer, dry_run)
            continue
        own = [name for name in names if reading.belongs(name, os.path.basename(one["prefix"]))]
        own.sort(key=lambda name: not name.endswith(".index"))  # the file that makes it a checkpoint comes first
        for name in own:
            with suppress(OSError):
                answer["freed_bytes"] += files.stat_regular(name, place.descriptor).st_size
            if not dry_run:
                with suppress(FileNotFoundError):  # its trainer has removed it
                    os.unlink(name, dir_fd=place.descriptor)
        answer["removed"].append(one)


def _remove_other(place: OpenDirectory, one: Checkpoint, answer: Pruned, dry_run: bool) -> None:
    """Removes a checkpoint that is one file, with what is beside it alone, or one directory."""
    row, name = formats.BY_KIND[one["kind"]], os.path.basename(one["prefix"])
    if not dry_run:
        with suppress(FileNotFoundError):  # its trainer has removed it
            if row.is_directory:
                place.remove_tree(name)
            else:
                os.unlink(name, dir_fd=place.descriptor)
    answer["freed_bytes"] += one["size_bytes"]
    answer["removed"].append(one)
