"""The variables of the newest checkpoint, by the part that each task has saved."""

from __future__ import annotations

import heapq
import os
import time

from ...checkpoints.tensor_bundle import Damaged, Entry, Index
from ...host.budget import Budget, Silent, Spent, within
from .records import MOST_LARGEST, MOST_SAVES, MOST_SHARDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

    from ...records.checkpoints import Checkpoint, Reports
    from .records import Parameters, Save, Shard, Variable

LIMIT_S = 3.0
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLICE, _END = "\0", "\0\1"
"""The key of a part of a partitioned variable: its name stands between these (tensorflow/core/util/saved_tensor_slice_
util.cc)."""


def parameters_in(reports: Reports) -> Optional[Parameters]:
    """Reads the newest complete checkpoint of TensorFlow's; None if there is none, or it cannot be read in time."""
    found = [(one["newest_complete"], one["dir"]) for one in reports]
    known: List[Tuple[float, str, Checkpoint]] = [
        (one["time"], os.path.join(directory, one["prefix"]), one)
        for one, directory in found
        if one is not None and one["kind"] == "tensorflow"
    ]
    if not known:
        return None
    _, prefix, newest = max(known, key=lambda one: one[:2])
    try:
        return within(LIMIT_S + 1.0, "parameters of " + prefix, lambda: read(prefix, newest["step"]))
    except (Silent, Spent, Damaged, OSError):
        return None


def saves_in(reports: Reports) -> List[Save]:
    """The complete checkpoints of the directory that has the newest one; newest first."""
    newest = max(
        reports, key=lambda one: one["newest_complete"]["time"] if one["newest_complete"] else 0.0, default=None
    )
    complete = [one for one in newest["all"] if one["complete"]] if newest is not None else []
    found: List[Save] = [
        {"time": one["time"], "step": one["step"], "size_bytes": one["size_bytes"]} for one in complete
    ]
    return sorted(found, key=lambda one: -one["time"])[:MOST_SAVES]


def read(prefix: str, step: Optional[int]) -> Parameters:
    """Raises Spent, Damaged and OSError."""
    sizes: List[Shard] = []
    largest: List[Tuple[int, str, int]] = []

    def keep(name: str, entry: Entry) -> None:
        if name == _GRAPH or not entry.size or entry.shard >= MOST_SHARDS:
            return
        while len(sizes) <= entry.shard:
            sizes.append({"size_bytes": 0, "variables": 0})
        sizes[entry.shard]["size_bytes"] += entry.size
        sizes[entry.shard]["variables"] += 1
        one = entry.size, name, entry.shard
        if len(largest) < MOST_LARGEST:
            heapq.heappush(largest, one)
        else:
            heapq.heappushpop(largest, one)

    index = Index(prefix, Budget(time.monotonic() + LIMIT_S, 0).check, keep)
    while len(sizes) < min(index.shards, MOST_SHARDS):
        sizes.append({"size_bytes": 0, "variables": 0})
    variables: List[Variable] = [
        {"name": variable_name(name), "size_bytes": size, "shard": shard}
        for size, name, shard in sorted(largest, reverse=True)
    ]
    return {"prefix": prefix[:8192], "step": step, "shards": sizes, "largest": variables}


def variable_name(key: str) -> str:
    """The name of a variable by its key in an index."""
    if key.startswith(_SLICE):
        key = key[len(_SLICE) :].partition(_END)[0]
    return (key[: -len(_VALUE)] if key.endswith(_VALUE) else key)[:4096]
