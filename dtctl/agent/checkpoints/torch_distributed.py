"""Distributed checkpoints of PyTorch (torch.distributed.checkpoint, DCP): a directory of shards, one or more a rank.

`.metadata` is written last, under another name first, by the rank that coordinates the save; it names the shards
(torch/distributed/checkpoint/filesystem.py). Ranks that save without coordination write `__RANK.metadata` each. A rank
that has nothing to save leaves an empty shard that no metadata names. All metadata are pickles, which are searched for
these names and never unpickled.

A shard is `__RANK_FILE.distcp`. Where hosts do not share the directory, each has the shards of its ranks alone.
"""

from __future__ import annotations

import re

from .torch_files import STEP_IN_NAME
from .trees import INTERRUPTED, of_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Set, Tuple

    from .trees import Names, Tree

METADATA = ".metadata"

_OF_RANK = r"__([0-9]{1,9})\.metadata\Z"
_NUMBERED = r"(?:global_)?(?:step|iter)-[0-9]{1,15}\Z"
_SHARD = r"__([0-9]{1,9})_([0-9]{1,9})\.distcp\Z"
_WRITTEN_BY = b"torch.distributed.checkpoint"
"""The module of the first class in a pickle of metadata."""

_FILES_OF_RANK = 1000
"""The most files of a rank whose shards are numbered."""
_MOST_NUMBER = 1 << 40


def recognises(name: str, names: Names) -> bool:
    if re.match(_NUMBERED, name) is not None and names.is_empty():
        return True  # a kill has left it so, and a program that takes the largest number loads it
    return names.has_any(_SHARD) or names.has_any(_OF_RANK) or names.begins_with(METADATA, _WRITTEN_BY)


def step(name: str, tree: Tree) -> Optional[int]:
    found = re.match(STEP_IN_NAME, name)
    return int(found.group(1)) if found else None


def problem(name: str, tree: Tree) -> Optional[str]:
    cut = next((path for path in _metadata(tree) if tree.is_cut_pickle(path)), None)
    if cut is not None:
        return "%s is cut short, or damaged" % cut
    missing = next((shard for shard in sorted(named(tree)) if shard not in tree.sizes), None)
    if missing is not None:
        return "%s is missing" % missing
    return INTERRUPTED if _unnamed(tree) else tree.problem()


def _unnamed(tree: Tree) -> bool:
    """Whether the metadata of a shard are not there, which are written after it."""
    if METADATA in tree.sizes:
        return False
    ranks = {match.group(1) for match in (re.match(_OF_RANK, path) for path in tree.sizes) if match}
    shards = [match for match in (re.match(_SHARD, path) for path in tree.sizes) if match]
    return not ranks or any(match.group(1) not in ranks for match in shards)


def named(tree: Tree) -> Set[str]:
    """The shards that the metadata name. Raises OSError."""
    return {shard for path in _metadata(tree) for shard in tree.named(path)}


def _metadata(tree: Tree) -> List[str]:
    return sorted(path for path in tree.sizes if path == METADATA or re.match(_OF_RANK, path))


def shards(tree: Tree) -> int:
    return len(named(tree)) or len(_present(tree))


def parts(tree: Tree) -> Tuple[List[int], List[int]]:
    """The numbers of the shards that are whole here, and of those that the metadata name and others may hold."""
    wanted = named(tree)
    held = [path for path in _present(tree) if (not wanted or path in wanted) and of_part(tree.at(path)) is None]
    lacking = [path for path in wanted if path not in tree.sizes]
    return _numbers(held), _numbers(lacking)


def _present(tree: Tree) -> List[str]:
    return [path for path in tree.sizes if re.match(_SHARD, path)]


def _numbers(paths: List[str]) -> List[int]:
    found = (number_of(path) for path in paths)
    return sorted(number for number in found if number is not None)


def number_of(shard: str) -> Optional[int]:
    """A number for a shard, the same on each host; None for a name that has none."""
    match = re.match(_SHARD, shard)
    rank, file = (int(match.group(1)), int(match.group(2))) if match else (0, _FILES_OF_RANK)
    number = rank * _FILES_OF_RANK + file
    return number if file < _FILES_OF_RANK and number < _MOST_NUMBER and shard_of(number) == shard else None


def shard_of(number: int) -> str:
    """The name of the shard of this number."""
    return "__%d_%d.distcp" % divmod(number, _FILES_OF_RANK)
