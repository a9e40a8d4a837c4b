"""What a change should bring: a model of a step from its measured parts. Pure.

A step takes 1. What a cause takes of it, `share`, is known at most: a step may do other things meanwhile. So a change
that removes it leaves a step of 1 - share at best; that half of it was hidden behind other work is the other end of the
range. docs/speed.md has runs that were compared with it.
"""

from __future__ import annotations

from typing import NamedTuple

from dtctl.agent.rooms.speed.records import Parameters

MOST_TIMES = 20.0
HIDDEN = 0.5
"""The part of a wait that may have been hidden behind other work."""


class Range(NamedTuple):
    """How many times the steps a second."""

    least: float
    most: float


def faster(share: float) -> Range:
    """The effect of removing what takes this share of a step."""
    share = min(1.0, max(0.0, share))
    return Range(times(share * HIDDEN), times(share))


def times(removed: float) -> float:
    """How many times the steps a second, if this share of a step is removed for certain."""
    return min(MOST_TIMES, 1 / max(1 / MOST_TIMES, 1 - removed))


def share_by_greedy(parameters: Parameters | None, servers: int) -> tuple[float, dict[str, float | str] | None]:
    """The least share of the bytes that one of several servers can hold while each variable stays whole.

    And the largest variable, if it is what prevents a fair share; that can be partitioned.
    """
    fair = 1 / servers
    if parameters is None:
        return fair, None
    whole = sum(shard["size_bytes"] for shard in parameters["shards"])
    if not parameters["largest"] or not whole:
        return fair, None
    largest = parameters["largest"][0]
    share = min(1.0, largest["size_bytes"] / whole)
    if share <= fair:
        return fair, None
    return share, {"name": largest["name"], "bytes": largest["size_bytes"], "whole": whole}


def holders(parameters: Parameters | None, servers: list[str]) -> dict[str, tuple[float, int]]:
    """Bytes and variables by server; empty if it is unknown which part of the checkpoint each has saved.

    The parts are in the order of device names, in which ps:10 comes before ps:2 (tensorflow/python/training/saver.py,
    tensorflow/python/checkpoint/functional_saver.py); a coordinator may add one of its own, which is first, and small.
    """
    if parameters is None:
        return {}
    shards = parameters["shards"]
    if len(shards) == len(servers) + 1 and shards[0]["size_bytes"] <= 1000:
        shards = shards[1:]
    if len(shards) != len(servers):
        return {}
    ordered = sorted(servers, key=lambda task: f"/job:{task.replace(':', '/replica:0/task:')}/")
    return {task: (one["size_bytes"], one["variables"]) for task, one in zip(ordered, shards, strict=True)}
