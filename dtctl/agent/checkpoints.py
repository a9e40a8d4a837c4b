"""The TensorFlow checkpoints in a run's directories, without TensorFlow (docs/agent.md, "Checkpoints").

Looked at: each directory and those directly in it, as tasks like to save to `output/chief/`. Not looked at: what a
save in progress calls its files, the directories that sharded saves work in, and those whose names TensorFlow's
guide gives to what other workers than the chief must save and throw away.
"""

from __future__ import annotations

import os
import re

from .tensor_bundle import Index, file_size, number_in
from .tensor_table import Damaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    Checkpoint = Dict[str, Any]

ASIDE = "damaged"
"""Where damaged checkpoints are moved, beside the others."""

_MOST = 20
_MOST_INDEX_BYTES = 16 * 1024 * 1024
"""Of all indexes that are read in one directory: about two seconds of checksums on a slow host."""

_INDEX = re.compile(r"(.+)\.index\Z")
_DATA = re.compile(r"(.+)\.data-[0-9]{5}-of-([0-9]{5})\Z")
_PASSING = re.compile(r".*_temp(_[0-9a-f]{32})?\Z|workertemp_[0-9]+\Z")


class _Files:
    """What belongs to one checkpoint, by the names of its files."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.data: List[str] = []
        self.shards = 0
        self.time = 0.0
        self.index_bytes: Optional[int] = None


def report(directories: List[str]) -> List[Dict[str, Any]]:
    """Of each directory the newest complete checkpoint, newer ones that are not complete, and all (newest first)."""
    return [_directory(directory) for directory in directories]


def _directory(directory: str) -> Dict[str, Any]:
    found: Dict[str, _Files] = {}
    problem = None
    try:
        below = _collect(directory, "", found)
        for name in below:
            _collect(directory, name + "/", found)
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    all_of_it = _checked(directory, list(found.values()))
    complete = next((index for index, each in enumerate(all_of_it) if each["complete"]), len(all_of_it))
    return {
        "dir": directory,
        "newest_complete": all_of_it[complete] if complete < len(all_of_it) else None,
        "incomplete": all_of_it[:complete],
        "all": all_of_it,
        "problem": problem,
    }


def _collect(directory: str, below: str, found: Dict[str, _Files]) -> List[str]:
    """Adds the checkpoints of one directory; the directories in it that may hold more."""
    directories = []
    try:
        with os.scandir(os.path.join(directory, below)) as listed:
            for entry in listed:
                match = _INDEX.match(entry.name)
                if match:
                    files = _files_of(below + match.group(1), found)
                    files.index_bytes = file_size(entry.path)
                    files.time = _modified(entry.path)
                    continue
                match = _DATA.match(entry.name)
                if match:
                    files = _files_of(below + match.group(1), found)
                    files.data.append(entry.path)
                    files.shards = int(match.group(2))
                elif not below and entry.is_dir() and entry.name != ASIDE and not _PASSING.match(entry.name):
                    directories.append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing has been saved yet
    return sorted(directories)


def _files_of(prefix: str, found: Dict[str, _Files]) -> _Files:
    if prefix not in found:
        found[prefix] = _Files(prefix)
    return found[prefix]


def _checked(directory: str, found: List[_Files]) -> List[Checkpoint]:
    """The newest ones, looked into until enough has been read."""
    for files in found:
        if files.index_bytes is None:
            files.time = max(map(_modified, files.data))
    found.sort(key=lambda files: (files.time, number_in(files.prefix) or 0, files.prefix), reverse=True)
    checkpoints: List[Checkpoint] = []
    index_bytes = 0
    for files in found[:_MOST]:
        index_bytes += files.index_bytes or 0
        if index_bytes > _MOST_INDEX_BYTES and checkpoints:
            break
        checkpoint = _checkpoint(directory, files)
        if checkpoint is not None:
            checkpoints.append(checkpoint)
    return checkpoints


def _checkpoint(directory: str, files: _Files) -> Optional[Checkpoint]:
    """None when it has been deleted in the meantime, as trainers do with old ones."""
    prefix = os.path.join(directory, files.prefix)
    step, shards = number_in(prefix), files.shards
    try:
        if files.index_bytes is None:
            raise Damaged("the index is missing: the save has not ended, or was interrupted")
        index = Index(prefix)
        step, shards, problem = index.step(), index.shards, index.problem()
    except Damaged as error:
        problem = str(error)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"the index cannot be read: {error.strerror}"
    sizes = [file_size(path) for path in files.data]
    if problem is not None and files.index_bytes is not None and file_size(prefix + ".index") is None:
        return None
    return {
        "prefix": files.prefix,
        "step": step,
        "time": files.time,
        "size_bytes": sum(size or 0 for size in sizes) + (files.index_bytes or 0),
        "shards": shards,
        "complete": problem is None,
        "problem": problem,
    }


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except FileNotFoundError:
        return 0.0
