"""The points of one tag: at most so many, evenly spread, and always the last one."""

from __future__ import annotations

import math
from array import array
from collections import deque

from ..records.kinds import MOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, List, Tuple

    from ..records.metrics import SeriesPoints

    Point = Tuple[int, float, float]
    """Step, wall time, value."""

MOST_POINTS = 1000
"""That are kept of a series; of longer ones every second, then every fourth, ... is."""

MOST_FRESH = 1000
"""That are kept for those who follow, between two looks."""


class Series:
    """`count`: how many points it has, with those that are not kept."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh: Deque[Point] = deque(maxlen=MOST_FRESH)
        self.file = ""
        self.every = 1
        """Each so many a point is kept; the last one is until the next comes."""
        self.steps = array("q")
        self.times = array("d")
        self.values = array("d")

    @property
    def _columns(self) -> Tuple[array[Any], ...]:
        return self.steps, self.times, self.values

    def add(self, file: str, point: Point) -> None:
        """A point of a file. A file that is newer than those before hides what is not before its first step.

        For a trainer that starts again goes back to its checkpoint, and writes the steps since then once more.
        """
        if file > self.file:
            if self.file:
                self.hide(point[0], point[1])
            self.file = file
        if self.steps and (self.count - 1) % self.every:
            for column in self._columns:
                column.pop()
        for column, number in zip(self._columns, point):
            column.append(number)
        if self.count % self.every == 0 and len(self.steps) >= 2 * MOST_POINTS:
            self._keep([*range(0, len(self.steps) - 1, 2), len(self.steps) - 1])
            self.every *= 2
        self.count += 1
        self.fresh.append(point)

    def hide(self, step: int, until: float) -> None:
        """Forgets points from that step on, as far as they were written before that time."""
        kept = [index for index in range(len(self.steps)) if self.steps[index] < step or self.times[index] > until]
        if len(kept) < len(self.steps):
            self._keep(kept)
            self.count = max(0, (len(kept) - 1) * self.every + 1)

    def _keep(self, kept: List[int]) -> None:
        for column in self._columns:
            column[:] = array(column.typecode, [column[index] for index in kept])

    def __bool__(self) -> bool:
        return bool(self.steps)

    def points(self) -> List[Point]:
        """Those that are kept, by their steps."""
        return sorted(zip(*self._columns), key=lambda point: point[0])

    def record(self, tag: str, points: List[Point]) -> SeriesPoints:
        """Some of its points."""
        finite = [value for value in self.values if math.isfinite(value)]
        return {
            "tag": tag,
            "count": min(self.count, MOST),
            "least": repr(min(finite)) if finite else None,
            "most": repr(max(finite)) if finite else None,
            "steps": [step for step, _, _ in points],
            "times": [wall for _, wall, _ in points],
            "values": [repr(value) for _, _, value in points],
        }


def spread(points: List[Point], most: int) -> List[Point]:
    """At most so many of them, evenly spread, the last one among them."""
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    between = (len(points) - 1) / (most - 1)
    return [points[round(index * between)] for index in range(most)]
