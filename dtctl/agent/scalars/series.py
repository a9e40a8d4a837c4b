"""The points of one tag: at most so many, evenly spread, and always the last one."""

from __future__ import annotations

from array import array
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, List, Optional, Tuple

    Point = Tuple[int, float, float]
    """Step, wall time, value."""

MOST_POINTS = 1000
"""That are kept of a series; of longer ones every second, then every fourth, ... is."""

MOST_FRESH = 1000
"""That are kept for those who follow, between two looks."""


class Series:
    """`count`: how many points it has, those that are not kept too."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh: Deque[Point] = deque(maxlen=MOST_FRESH)
        self._file = ""
        self._every = 1
        self._steps = array("q")
        self._times = array("d")
        self._values = array("d")
        self._last: Optional[Point] = None
        """Where it is not among those that are kept."""

    def add(self, file: str, point: Point) -> None:
        """A point of a file. A file that is newer than those before hides what is not before its first step.

        For a trainer that starts again goes back to its checkpoint, and writes the steps since then once more.
        """
        if file > self._file:
            if self._file:
                self.hide(point[0], point[1])
            self._file = file
        if self.count % self._every == 0:
            self._steps.append(point[0])
            self._times.append(point[1])
            self._values.append(point[2])
            self._last = None
            if len(self._steps) >= 2 * MOST_POINTS:
                self._thin()
        else:
            self._last = point
        self.count += 1
        self.fresh.append(point)

    def hide(self, step: int, until: float) -> None:
        """Forgets points from that step on, as far as they were written before that time."""
        kept = [index for index in range(len(self._steps)) if self._steps[index] < step or self._times[index] > until]
        hidden = len(self._steps) - len(kept)
        if hidden:
            self._steps = array("q", [self._steps[index] for index in kept])
            self._times = array("d", [self._times[index] for index in kept])
            self._values = array("d", [self._values[index] for index in kept])
            self.count = len(kept) * self._every  # of which the next one is kept
        if self._last is not None and self._last[0] >= step and self._last[1] <= until:
            self._last = None

    def _thin(self) -> None:
        self._steps, self._times, self._values = self._steps[::2], self._times[::2], self._values[::2]
        self._every *= 2

    def __bool__(self) -> bool:
        return bool(self._steps) or self._last is not None

    def points(self) -> List[Point]:
        """Those that are kept, by their steps."""
        found = list(zip(self._steps, self._times, self._values))
        if self._last is not None:
            found.append(self._last)
        found.sort(key=lambda point: point[0])
        return found


def spread(points: List[Point], most: int) -> List[Point]:
    """At most so many of them, evenly spread, the last one among them."""
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    between = (len(points) - 1) / (most - 1)
    return [points[round(index * between)] for index in range(most)]
