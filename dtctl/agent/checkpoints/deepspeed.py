"""Checkpoints of DeepSpeed: a directory with a tag as its name, `global_step500` unless the program chooses another.

`latest`, beside it, names the tag to load; it is written last (deepspeed/runtime/engine.py, save_checkpoint). Each rank
writes its own part of the optimizer.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from ..host import files
from .torch_files import STEP_IN_NAME
from .trees import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .trees import Names, Tree

LATEST = "latest"

_PARTS = r"(?s)(?:.*mp_rank_[0-9]+_model_states|.*_optim_states|layer_[0-9]+-model.*_states)\.pt\Z"
_MODEL = r"(?s)(?:.*mp_rank_[0-9]+_model_states|layer_[0-9]+-model.*_states)\.pt\Z"
_RANK = r"(?:bf16_|fp16_)?zero_pp_rank_([0-9]{1,6})_mp_rank_([0-9]{1,6})_optim_states\.pt\Z"
_NAME = r"global_step[0-9]{1,15}\Z"
_MOST_TAG_BYTES = 300


def recognises(name: str, names: Names) -> bool:
    return names.has_any(_PARTS) or (re.match(_NAME, name) is not None and names.is_empty())


def step(name: str, tree: Tree) -> Optional[int]:
    found = re.match(STEP_IN_NAME, name)
    return int(found.group(1)) if found else None


def problem(name: str, tree: Tree) -> Optional[str]:
    if not tree.matching(_MODEL):
        return "it has no model: %s" % INTERRUPTED
    missing = _missing(tree)
    if missing is not None:
        return "%s is missing" % missing
    found = tree.problem()
    if found is not None:
        return found
    latest = tag(os.path.dirname(tree.path))
    own, newest = re.match(STEP_IN_NAME, name), re.match(STEP_IN_NAME, latest or "")
    if own and newest and int(own.group(1)) > int(newest.group(1)):
        return "`%s` names %s, an earlier one: %s" % (LATEST, latest, INTERRUPTED)
    return None


def shards(tree: Tree) -> int:
    return max(1, len(tree.matching(_RANK)))


def _missing(tree: Tree) -> Optional[str]:
    """A part of the optimizer that a rank before the last one should have written."""
    ranks: Dict[str, List[int]] = {}
    for path in tree.matching(_RANK):
        found = re.match(_RANK, os.path.basename(path))
        if found is not None:
            ranks.setdefault(found.group(2), []).append(int(found.group(1)))
    for part, seen in sorted(ranks.items()):
        lacking = next((rank for rank, one in enumerate(sorted(seen)) if one != rank), None)
        if lacking is not None:
            return "zero_pp_rank_%d_mp_rank_%s_optim_states.pt" % (lacking, part)
    return None


def tag(directory: str, at: Optional[int] = None) -> Optional[str]:
    """The tag that `latest` names; None where there is no such file."""
    with suppress(OSError):
        path = os.path.join(directory, LATEST) if at is None else LATEST
        return files.read(path, _MOST_TAG_BYTES, at).decode("utf-8", "replace").strip()
    return None
