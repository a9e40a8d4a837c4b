"""What Orbax saves: a directory for each checkpoint, with a file of metadata in it, as programs of JAX write them.

A save works in a directory whose name has a suffix, and renames it when it has ended; where a storage cannot rename a
directory at once, `commit_success.txt` is written last (orbax/checkpoint/_src/path/atomicity.py).
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress

from ..host import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..host.budget import Budget

METADATA = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
_MARKS = (METADATA, COMMITTED, "_METADATA", os.path.join("default", "_METADATA"))
"""By one of these names in it a directory is known; the last two are those of versions before 0.6."""

_UNFINISHED = re.compile(r"\.orbax-checkpoint-tmp(?:-[0-9]+)?\Z")
_STEP = re.compile(r"(?:\A|[_-])([0-9]{1,15})\Z")
_MOST_METADATA_BYTES = 1 << 20
_MOST_DEPTH = 6


def is_checkpoint(path: str) -> bool:
    """Whether a directory is one of Orbax's, or is about to become one. Raises OSError."""
    return _UNFINISHED.search(path) is not None or any(os.path.lexists(os.path.join(path, mark)) for mark in _MARKS)


def step(name: str) -> Optional[int]:
    """By the name of its directory, as a CheckpointManager chooses it: `100`, `checkpoint_100`."""
    found = _STEP.search(_UNFINISHED.sub("", os.path.basename(name)))
    return int(found.group(1)) if found else None


def problem(path: str) -> Optional[str]:
    """Why it is not complete; None when it is. Raises OSError."""
    unfinished = "the save has not ended, or was interrupted"
    if _UNFINISHED.search(path):
        return unfinished
    if os.path.lexists(os.path.join(path, COMMITTED)):
        return None
    try:
        metadata = json.loads(files.read(os.path.join(path, METADATA), _MOST_METADATA_BYTES))
    except FileNotFoundError:
        return None  # of an older version, which has renamed it
    except (ValueError, RecursionError):
        return "%s in it is damaged" % METADATA
    ended = metadata.get("commit_timestamp_nsecs") if isinstance(metadata, dict) else None
    return None if ended else unfinished


def modified(path: str) -> float:
    """When it was written: that of its metadata, else its own. Raises OSError."""
    with suppress(FileNotFoundError):
        return os.lstat(os.path.join(path, METADATA)).st_mtime
    return os.lstat(path).st_mtime


def size_bytes(path: str, budget: Budget, depth: int = 0) -> int:
    """Of the files in it; links are not followed. Raises OSError, Spent."""
    total = 0
    with os.scandir(path) as listed:
        for entry in listed:
            budget.name()
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    total += size_bytes(entry.path, budget, depth + 1) if depth < _MOST_DEPTH else 0
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total
