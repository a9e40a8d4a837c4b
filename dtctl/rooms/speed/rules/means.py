"""Means of what is not known of all tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from dtctl.rooms.speed.facts import Facts


def mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None


def of_others(facts: Facts, task: str, value: Callable[[str], float]) -> float | None:
    """The median of the other tasks of the same kind."""
    kind = facts.workers if task in facts.workers else facts.servers
    others = [value(one) for one in kind if one != task]
    return median(others) if others else None
