"""Locks of PyTorch's compiled extensions that a killed process has left, and for which trainers wait without end.

The process that compiles an extension, as DeepSpeed does at its start, creates a file `lock` in the directory of the
build, keeps it open, and removes it when it is done; others wait until the file is gone (torch/utils/file_baton.py).
Nothing removes the lock of a killed process. A task waits for it only if its stack says so.
"""

from __future__ import annotations

import os
import stat
import time
from itertools import islice

from ...dump import descriptors_of
from ...host import paths, processes
from ..dump import serving as dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Mapping

    from ...records.run_state import Entry
    from ...records.vitals import Stack
    from ...run.runfiles import RunFiles
    from ..dump.records import Dump

_WAITS = ("wait", os.path.join("torch", "utils", "file_baton.py"))
"""The function and the file of the frame in which such a trainer waits."""

_LOCK = "lock"
_MOST_BUILDS = 1000
OLD_S = 600.0
"""A lock that is younger than the process that waits may be another host's, on a disk that both share."""


def left_locks(files: RunFiles, tasks: Mapping[str, Entry]) -> Dict[str, str]:
    """Task -> the lock for which one of its processes waits, although no process of this host holds it.

    A trainer is asked for its stacks only where such a lock is among its builds.
    """
    found: Dict[str, Dict[int, List[str]]] = {}
    for task, entry in tasks.items():
        attempt = paths.attempt_directory(files.directory, task, entry["attempt"])
        running = processes.of_attempt(attempt) if entry["pid"] is not None else []
        left = {one.pid: _left(one) for one in running}
        if any(left.values()):
            found[task] = left
    answers: List[Dump] = []
    dumps.serve(files, {task: tasks[task] for task in found}, answers.append)
    return {one["task"]: lock for one in answers for lock in islice(_waited_for(one, found[one["task"]]), 1)}


def _waited_for(dump: Dump, left: Mapping[int, List[str]]) -> Iterator[str]:
    for process in dump["processes"]:
        if left.get(process["pid"]) and any(map(_waits, process["stacks"])):
            yield left[process["pid"]][0]


def _waits(stack: Stack) -> bool:
    function, file = _WAITS
    return any(one["function"] == function and one["file"].endswith(file) for one in stack["frames"])


def _left(process: processes.Process) -> List[str]:
    """The locks among the builds that a process uses and that none holds, the oldest first."""
    now, found = time.time(), []
    for path in _locks(_root(processes.environment(process.pid))):
        try:
            status = os.lstat(path)
        except OSError:
            continue
        age_s = now - status.st_mtime
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()  # others' processes cannot be seen
        if is_own and age_s > min(process.age_s, OLD_S) and not _is_held(path):
            found.append((-age_s, path))
    return [path for _, path in sorted(found)]


def _root(variables: Mapping[str, str]) -> str:
    """The directory of the builds (torch/utils/cpp_extension.py, _get_build_directory)."""
    cache = variables.get("XDG_CACHE_HOME") or os.path.join(variables.get("HOME") or os.path.expanduser("~"), ".cache")
    return variables.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions")


def _locks(root: str) -> Iterator[str]:
    """ROOT/BUILD/lock, or ROOT/py311_cpu/BUILD/lock."""
    for directory in _entries(root):
        yield os.path.join(directory, _LOCK)
        for inner in _entries(directory):
            yield os.path.join(inner, _LOCK)


def _entries(directory: str) -> List[str]:
    try:
        return [os.path.join(directory, name) for name in paths.entries(directory)[:_MOST_BUILDS]]
    except OSError:
        return []


def _is_held(path: str) -> bool:
    return any(descriptors_of(pid, path) for pid in processes.of_user(os.geteuid()))
