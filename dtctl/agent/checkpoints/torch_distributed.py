"""Distributed checkpoints of PyTorch (torch.distributed.checkpoint, DCP): a directory of shards, one or more a rank.

`.metadata` is written last, under another name first, by the rank that coordinates the save; it names the shards
(torch/distributed/checkpoint/filesystem.py). It is a pickle, which is searched for these names and never unpickled.
"""

from __future__ import annotations

import os
import re

from ..host import files
from .torch_files import STEP_IN_NAME
from .trees import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from .trees import Names, Tree

METADATA = ".metadata"

_SHARD = r"(?s).+\.distcp\Z"
_SHARD_IN_METADATA = rb"[A-Za-z0-9_.-]{1,200}\.distcp"
_MOST_METADATA_BYTES = 32 << 20


def recognises(name: str, names: Names) -> bool:
    return names.has(METADATA) or names.has_any(_SHARD)


def step(name: str, tree: Tree) -> Optional[int]:
    found = re.match(STEP_IN_NAME, name)
    return int(found.group(1)) if found else None


def problem(name: str, tree: Tree) -> Optional[str]:
    if METADATA not in tree.sizes:
        return INTERRUPTED
    missing = next((shard for shard in _named(tree) if shard not in tree.sizes), None)
    return "%s is missing" % missing if missing is not None else tree.problem()


def shards(tree: Tree) -> int:
    return len(_named(tree)) if METADATA in tree.sizes else len(tree.matching(_SHARD))


def _named(tree: Tree) -> List[str]:
    with files.opened(os.path.join(tree.path, METADATA)) as file:
        content = files.read_at(file, 0, min(tree.sizes[METADATA], _MOST_METADATA_BYTES))
    return sorted({one.decode("ascii") for one in re.findall(_SHARD_IN_METADATA, content)})
