"""Checkpoints of Orbax (JAX): a directory for each, with a file of metadata in it.

A save works in a directory whose name has a suffix, and renames it when it has ended; if a storage cannot rename a
directory atomically, `commit_success.txt` is written last (orbax/checkpoint/_src/path/atomicity.py).
"""

from __future__ import annotations

import os
import re

from .trees import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .trees import Names, Tree

METADATA = "_CHECKPOINT_METADATA"
COMMITTED = "commit_success.txt"
MARKS = (METADATA, COMMITTED, "_METADATA", os.path.join("default", "_METADATA"))
"""Files that identify a directory as a checkpoint; the last two are of versions before 0.6."""
NO_CHECKSUMS = "of a checkpoint of Orbax it is only checked that the save has ended"

_UNFINISHED = r"\.orbax-checkpoint-tmp(?:-[0-9]+)?\Z"
_STEP = r"(?:\A|[_-])([0-9]{1,15})\Z"


def recognises(name: str, names: Names) -> bool:
    """Whether a directory is one of Orbax's, or is about to become one."""
    return re.search(_UNFINISHED, name) is not None or any(names.has(mark) for mark in MARKS)


def step(name: str, tree: Tree) -> Optional[int]:
    """The step by the name of its directory, as a CheckpointManager chooses it: `100`, `checkpoint_100`."""
    found = re.search(_STEP, re.sub(_UNFINISHED, "", os.path.basename(name)))
    return int(found.group(1)) if found else None


def problem(name: str, tree: Tree) -> Optional[str]:
    """Why it is not complete; None when it is. Raises OSError."""
    if re.search(_UNFINISHED, name):
        return INTERRUPTED
    if COMMITTED in tree.sizes:
        return None
    if METADATA not in tree.sizes:
        return None  # of an older version, which has renamed it
    metadata = tree.json(METADATA)
    if metadata is None:
        return "%s in it is damaged" % METADATA
    ended = metadata.get("commit_timestamp_nsecs") if isinstance(metadata, dict) else None
    return None if ended else INTERRUPTED
