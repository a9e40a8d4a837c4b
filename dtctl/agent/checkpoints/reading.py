"""The checkpoints of each format (formats.py), read without its library (docs/agent.md, "Checkpoints").

It reads each directory and its direct subdirectories, as tasks often save to `output/chief/`, and what lies deeper on
the routes of a format, where it follows no link. It skips files of a save in progress, the directories that sharded
saves work in, those whose names TensorFlow's guide and its Estimator give to temporary saves of workers other than the
chief, and those in which a checkpoint arrives.

Other users may write there, and the file system may hang: everything is validated, only regular files are opened, and a
search ends after a few seconds, with its findings so far.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress

from ..host import files
from ..host.budget import Budget, Silent, Spent, within
from ..records.checkpoints import MOST_SHARDS, Checkpoint, CheckpointReport
from ..records.kinds import MOST, made
from ..records.values import LAST_EPOCH, brief
from . import formats
from .tensor_bundle import MOST_BYTES, Damaged, Index, file_size, number_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple


LOOK_S = 3.0
"""The time limit of a report; each directory gets a little time even if those before it have used that up.

The coordinator waits for it: with the repair before it, that is less than the time after which agents give it up."""

LEAST_S = 0.5

MOST_NAMES = 100_000
"""The most names in a directory and its subdirectories."""

NOT_KNOWN = made(Checkpoint, prefix="", step=None, time=0.0, size_bytes=0, shards=0, complete=True, problem=None)
"""Used instead of the newest complete checkpoint if it is unknown whether there is one."""

_MOST = 20
_MOST_INDEX_BYTES = MOST_BYTES
"""The most bytes of all indexes that are read in one directory."""

_INDEX = r"(?s)(.+)\.index\Z"
_DATA = r"(?s)(.+)\.data-([0-9]{5})-of-([0-9]{5})\Z"


class _Files:
    """The parts of one checkpoint, by the names of its files."""

    __slots__ = ("data", "format", "held", "identity", "index_bytes", "prefix", "shards", "time")

    def __init__(self, prefix: str, row: formats.Format) -> None:
        self.prefix = prefix
        self.format = row
        """Unless it is TensorFlow's, `prefix` is the name of the one file or directory."""
        self.data: List[str] = []
        self.held: List[int] = []
        self.shards = 0
        self.identity = ""
        self.time = 0.0
        self.index_bytes: Optional[int] = None


class _Look:
    """The findings in one directory."""

    def __init__(self, directory: str, budget: Budget, most: int = _MOST) -> None:
        self.directory = directory
        self.most = most
        self.budget = budget
        self.found: Dict[str, _Files] = {}
        self.checkpoints: List[Checkpoint] = []
        self.problem: Optional[str] = None
        self.identity = ""

    def report_of_directory(self) -> CheckpointReport:
        complete = [one for one in self.checkpoints if one["complete"]]
        newest = next((one for one in complete if resumes(one)), None) or next(iter(complete), None)
        newer = self.checkpoints if newest is None else self.checkpoints[: self.checkpoints.index(newest)]
        return {
            "dir": self.directory,
            "newest_complete": newest,
            "incomplete": [one for one in newer if not one["complete"]],
            "all": self.checkpoints,
            "problem": None if self.problem is None else brief(self.problem),
            "identity": self.identity,
            "guessed": False,
        }


def report(directories: List[str]) -> List[CheckpointReport]:
    """The newest complete checkpoint of each directory, newer incomplete ones, and all (newest first)."""
    until = time.monotonic() + LOOK_S
    return [_answer(directory, max(until, time.monotonic() + LEAST_S)) for directory in directories]


def resumes(checkpoint: Checkpoint) -> bool:
    """Whether a training continues from it; others hold weights alone."""
    return formats.BY_KIND[checkpoint["kind"]].resumes


def newest(directories: List[str]) -> Optional[Checkpoint]:
    """The newest complete checkpoint from which a training continues; NOT_KNOWN if none was found and not everything
    could be read.
    """
    found = report(directories)
    complete = [one for each in found for one in each["all"] if one["complete"] and resumes(one)]
    if not complete and any(each["problem"] is not None for each in found):
        return NOT_KNOWN
    return max(complete, key=lambda one: one["time"], default=None)


def read_checkpoints(directory: str, until: float, most: int = _MOST) -> CheckpointReport:
    """The report of one directory, by the caller's thread. `until`: on the monotonic clock; `most`: to be reported."""
    listing = _Look(directory, Budget(until, MOST_NAMES), most)
    for part in (_list, _look_into):
        try:
            part(listing)
        except Spent as spent:
            listing.problem = listing.problem or f"{directory}: only part of it was searched: {spent}"
    return listing.report_of_directory()


def _answer(directory: str, until: float) -> CheckpointReport:
    limit_s = until - time.monotonic() + LEAST_S  # it ends by itself, unless the file system hangs
    try:
        return within(limit_s, directory, lambda: read_checkpoints(directory, until))
    except Silent:
        silent = _Look(directory, Budget(until, 0))
        silent.problem = f"{directory}: the file system does not answer"
        return silent.report_of_directory()


def _list(listing: _Look) -> None:
    with suppress(OSError):
        listing.identity = str(os.stat(listing.directory).st_ino)
    below: Dict[str, List[str]] = {"": _collect(listing, "")}
    for name in below[""]:
        below[name + "/"] = _collect(listing, name + "/")
    for place in dict.fromkeys(place for route in formats.ROUTES for place in _on_route(listing, route, below)):
        _collect(listing, place)


def _on_route(listing: _Look, route: formats.Route, below: Dict[str, List[str]]) -> List[str]:
    """The directories at the end of this route. `below`: the subdirectories of those that were read."""
    places = [""]
    for name in route.names:
        if name != formats.ANY:
            places = [place + name + "/" for place in places if _is_directory(listing, place + name)]
            continue
        for place in places:
            if place not in below:
                below[place] = _collect(listing, place, listed_only=True)
        places = [place + each + "/" for place in places for each in below[place]]
    return places


def _is_directory(listing: _Look, path: str) -> bool:
    listing.budget.check()
    with suppress(OSError):
        return stat.S_ISDIR(os.lstat(os.path.join(listing.directory, path)).st_mode)
    return False


def _collect(listing: _Look, below: str, listed_only: bool = False) -> List[str]:
    """Adds the checkpoints of one directory, unless it is only listed; returns its subdirectories that may contain
    more.
    """
    directories: List[str] = []
    try:
        with os.scandir(os.path.join(listing.directory, below)) as listed:
            for entry in listed:
                listing.budget.name()
                is_found = not listed_only and _add(listing.found, below, entry)
                if is_found or entry.name in formats.ASIDES or re.match(formats.PASSING, entry.name):
                    continue
                if files.leads_on(entry):
                    row = formats.of_directory(entry.path)
                    if row is None and not (below and entry.is_symlink()):
                        directories.append(entry.name)
                    elif row is not None and not listed_only and (row.links or not entry.is_symlink()):
                        _add_directory(listing.found, below, entry, row)
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing has been saved yet
    except OSError as error:  # foreign entries there must not hide the rest
        listing.problem = listing.problem or f"{error.filename}: {error.strerror}"
    return sorted(directories)


def _add(found: Dict[str, _Files], below: str, entry: os.DirEntry[str]) -> bool:
    """Notes a file of a checkpoint; False for any other file."""
    match = re.match(_INDEX, entry.name)
    row = None if match else formats.of_file(entry.name)
    if row is not None and not row.links and not entry.is_file(follow_symlinks=False):
        return False  # what a link leads to is listed itself
    if match or row:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return True  # deleted just now
        one = _files_of(below + (match.group(1) if match else entry.name), found, row or formats.TENSORFLOW)
        one.index_bytes, one.time = status.st_size, status.st_mtime
        one.identity = "%d-%d" % (status.st_ino, status.st_mtime_ns)
        return True
    match = re.match(_DATA, entry.name)
    if match:
        one = _files_of(below + match.group(1), found, formats.TENSORFLOW)
        one.data.append(entry.path)
        one.held.append(int(match.group(2)))
        one.shards = int(match.group(3))
    return match is not None


def _add_directory(found: Dict[str, _Files], below: str, entry: os.DirEntry[str], row: formats.DirectoryFormat) -> None:
    with suppress(FileNotFoundError):  # removed, or renamed, just now
        status = os.stat(entry.path)
        one = _files_of(below + entry.name, found, row)
        one.index_bytes, one.time = 0, row.modified(entry.path)
        one.identity = "%d-%d" % (status.st_ino, status.st_mtime_ns)


def _files_of(prefix: str, found: Dict[str, _Files], row: formats.Format) -> _Files:
    if prefix not in found:
        found[prefix] = _Files(prefix, row)
    return found[prefix]


def _look_into(listing: _Look) -> None:
    """The newest ones until enough has been read, and in any case until one is complete."""
    ordered = list(listing.found.values())
    for one in ordered:
        if one.index_bytes is None:
            one.time = max(_modified(path, listing.budget) for path in one.data)

    def newness(one: _Files) -> Tuple[float, int, str]:
        listing.budget.check()  # there may be many
        return one.time, number_in(one.prefix) or 0, one.prefix

    ordered.sort(key=newness, reverse=True)
    index_bytes = 0
    has_complete = False
    for one in ordered:
        listing.budget.check()
        if (one.index_bytes or 0) <= MOST_BYTES and one.format is formats.TENSORFLOW:  # larger ones are not read
            index_bytes += one.index_bytes or 0
        if has_complete and (len(listing.checkpoints) >= listing.most or index_bytes > _MOST_INDEX_BYTES):
            break
        if index_bytes > _MOST_INDEX_BYTES and listing.checkpoints:
            raise Spent("the newest indexes are too large")
        checkpoint = _checkpoint(listing.directory, one, listing.budget)
        if checkpoint is not None and (checkpoint["complete"] or len(listing.checkpoints) < listing.most):
            listing.checkpoints.append(checkpoint)
            has_complete = has_complete or checkpoint["complete"]


def _checkpoint(directory: str, found: _Files, budget: Budget) -> Optional[Checkpoint]:
    """A checkpoint by its files; None if it has just been deleted, as trainers do with old ones."""
    prefix = os.path.join(directory, found.prefix)
    step, shards, held = number_in(prefix), found.shards, found.held
    lacking: List[int] = []
    size_bytes = found.index_bytes or 0
    what = "the index" if found.format is formats.TENSORFLOW else "it"
    try:
        if found.format is not formats.TENSORFLOW:
            one = found.format.inspect(prefix, budget)
            problem, step, size_bytes, shards = one.problem, one.step, one.size_bytes, one.shards
            held, lacking = one.held, one.lacking
        elif found.index_bytes is None:
            raise Damaged("the index is missing: the save has not ended, or was interrupted")
        else:
            index = Index(prefix, budget.check)
            step, shards, problem = index.step(), index.shards, index.problem()
    except Damaged as error:
        problem = str(error)
    except (FileNotFoundError, *formats.Foreign):
        return None
    except files.Unfit as unfit:
        problem = f"{what} {unfit.strerror}"
    except OSError as error:
        problem = f"{what} cannot be read: {error.strerror}"
    for path in found.data:
        budget.check()
        size_bytes += file_size(path) or 0
    head = prefix + ".index" if found.format is formats.TENSORFLOW else prefix
    if problem is not None and found.index_bytes is not None and file_size(head) is None:
        return None
    return {
        "prefix": found.prefix,
        "step": step if step is not None and 0 <= step <= MOST else None,
        "time": min(max(found.time, 0.0), LAST_EPOCH),
        "size_bytes": min(size_bytes, MOST),
        "shards": shards,
        "complete": problem is None,
        "problem": None if problem is None else brief(problem),
        "kind": found.format.kind,
        "held": sorted(held)[:MOST_SHARDS],
        "lacking": lacking[:MOST_SHARDS],
        "identity": found.identity,
    }


def prefix_of(name: str) -> Optional[str]:
    """The prefix of the checkpoint to which a file belongs, by its name; None for any other file."""
    match = re.match(_INDEX, name) or re.match(_DATA, name)
    return match.group(1) if match else name if formats.of_file(name) is not None else None


def is_tensorflows(name: str) -> bool:
    """Whether a file has the name of an index or a shard."""
    return re.match(_INDEX, name) is not None or re.match(_DATA, name) is not None


def belongs(name: str, prefix: str) -> bool:
    """Whether a file is part of the checkpoint of this name."""
    match = re.match(_DATA, name)
    return name in (prefix + ".index", prefix + ".meta") or (match is not None and match.group(1) == prefix)


def _modified(path: str, budget: Budget) -> float:
    budget.check()
    try:
        return os.lstat(path).st_mtime
    except FileNotFoundError:
        return 0.0
