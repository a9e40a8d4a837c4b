"""The points of one tag: at most so many, evenly spread, and always the last one; and how they are reported."""

from __future__ import annotations

import math
from array import array
from collections import deque

from ..records.kinds import MOST
from ..records.metrics import LONGEST_PATH
from .event_files import identity_of, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Deque, List, Optional, Tuple

    from ..records.metrics import FolderPoints, SeriesPoints
    from .folder import Folder

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
        self.file = ""
        self.every = 1
        self.steps = array("q")
        self.times = array("d")
        self.values = array("d")
        self.last: Optional[Point] = None
        """Where it is not among those that are kept."""

    def add(self, file: str, point: Point) -> None:
        """A point of a file. A file that is newer than those before hides what is not before its first step.

        For a trainer that starts again goes back to its checkpoint, and writes the steps since then once more.
        """
        if file > self.file:
            if self.file:
                self.hide(point[0], point[1])
            self.file = file
        if self.count % self.every == 0:
            self.steps.append(point[0])
            self.times.append(point[1])
            self.values.append(point[2])
            self.last = None
            if len(self.steps) >= 2 * MOST_POINTS:
                self._thin()
        else:
            self.last = point
        self.count += 1
        self.fresh.append(point)

    def hide(self, step: int, until: float) -> None:
        """Forgets points from that step on, as far as they were written before that time."""
        kept = [index for index in range(len(self.steps)) if self.steps[index] < step or self.times[index] > until]
        hidden = len(self.steps) - len(kept)
        if hidden:
            self.steps = array("q", [self.steps[index] for index in kept])
            self.times = array("d", [self.times[index] for index in kept])
            self.values = array("d", [self.values[index] for index in kept])
            self.count = len(kept) * self.every  # of which the next one is kept
        if self.last is not None and self.last[0] >= step and self.last[1] <= until:
            self.last = None

    def _thin(self) -> None:
        self.steps, self.times, self.values = self.steps[::2], self.times[::2], self.values[::2]
        self.every *= 2

    def __bool__(self) -> bool:
        return bool(self.steps) or self.last is not None

    def points(self) -> List[Point]:
        """Those that are kept, by their steps."""
        found = list(zip(self.steps, self.times, self.values))
        if self.last is not None:
            found.append(self.last)
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


def folder_told(folder: Folder, series: List[SeriesPoints]) -> FolderPoints:
    return {
        "dir": text(folder.root)[-LONGEST_PATH:],
        "name": text(folder.name)[-LONGEST_PATH:],
        "identity": identity_of(folder.inode, folder.first_file),
        "series": series,
    }


def series_told(tag: str, series: Series, points: List[Point]) -> SeriesPoints:
    finite = [value for _, _, value in series.points() if math.isfinite(value)]
    return {
        "tag": tag,
        "count": min(series.count, MOST),
        "least": repr(min(finite)) if finite else None,
        "most": repr(max(finite)) if finite else None,
        "steps": [step for step, _, _ in points],
        "times": [wall for _, wall, _ in points],
        "values": [repr(value) for _, _, value in points],
    }
