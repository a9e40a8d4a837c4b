"""One directory with event files, which TensorBoard calls a run, such as `train` and `validation` of Keras.

Of each tag a limited number of points is kept, evenly spread, and always the last one.
"""

from __future__ import annotations

import math
import os
from array import array
from collections import deque
from contextlib import suppress

from ...host import files
from ...host.encodings import masked_crc32c
from ...records.kinds import MOST
from ...records.values import LAST_EPOCH, brief
from .event_files import folder_at
from .events import Damaged, Event, RecordFile, Replaced, decode
from .records import MOST_PROBLEMS, FolderPoints, SeriesPoints

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Deque, Dict, List, Tuple

    Point = Tuple[int, float, float]
    """Step, wall time, value."""

_ALWAYS_CHECKED_BYTES = 4096
"""Larger records are verified only if they contain a scalar: images are not used."""


class Room:
    """The number of series for which there is still room, in all folders."""

    def __init__(self, series: int) -> None:
        self.series = series
        self.omitted = 0
        """Values that had no room."""


class Folder:
    """`path` is in `root`; `name` is its place there."""

    def __init__(self, root: str, path: str, room: Room) -> None:
        self.root = root
        self.path = path
        self.name = os.path.relpath(path, root)
        self.inode = 0
        self.series: Dict[str, Series] = {}
        self.problems: Dict[str, str] = {}
        """File name -> why it is not read further."""
        self.files: Dict[str, RecordFile] = {}
        self._room = room

    @property
    def unread_bytes(self) -> int:
        return sum(file.unread_bytes for file in self.files.values())

    def record(self, series: List[SeriesPoints]) -> FolderPoints:
        return {**folder_at(self.root, self.path, self.inode, self.files), "series": series}

    def file(self, name: str) -> RecordFile:
        return self.files.setdefault(name, RecordFile(os.path.join(self.path, name)))

    def note(self, names: List[str]) -> None:
        """Updates its event files and their unread bytes, in case there is no time to read them."""
        there = {name: file for name, file in self.files.items() if name in names}
        if self.files and not there:
            self._forget()
        self.files = there
        for name in names:
            with suppress(OSError):
                self.file(name).note()

    def refresh(self, names: List[str], check: Callable[[], None]) -> None:
        """Reads what is new in its event files, which were noted. Raises what `check` does."""
        try:
            self._refresh(names, check)
        except Replaced:  # it was replaced: all of it is read again
            self._forget()
            try:
                self._refresh(names, check)
            except Replaced:
                self.problems = {"": "its files are replaced again and again"}

    def _forget(self) -> None:
        self._room.series += len(self.series)
        self.series.clear()
        self.files.clear()

    def _refresh(self, names: List[str], check: Callable[[], None]) -> None:
        self.problems = {}
        for name in sorted(names):  # their names begin with the time
            file = self.file(name)
            try:
                for data, checksum in file.new(check):
                    self._read(name, file, data, checksum, check)
            except Damaged as damaged:
                self._say(name, str(damaged))
            except files.Unfit as unfit:
                self._say(name, unfit.strerror or "")
            except FileNotFoundError:
                pass  # deleted just now
            except OSError as error:
                self._say(name, "cannot be read: %s" % error.strerror)

    def _say(self, name: str, problem: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems[name] = brief(problem)

    def _read(self, name: str, file: RecordFile, data: bytes, checksum: int, check: Callable[[], None]) -> None:
        small = len(data) <= _ALWAYS_CHECKED_BYTES
        if small:
            _hold(data, checksum, file)
        try:
            event = decode(data, self.series, check)
        except Damaged as damaged:
            raise Damaged("at byte %d %s" % (file.offset, damaged)) from None
        if event.scalars or event.starts:
            if not small:
                check()
                _hold(data, checksum, file)
            self._take(name, event, check)

    def _take(self, name: str, event: Event, check: Callable[[], None]) -> None:
        if not 0 <= event.step <= MOST:
            return
        wall = event.wall if math.isfinite(event.wall) else 0.0
        wall = min(max(wall, 0.0), LAST_EPOCH)
        if event.starts:
            check()
            for series in self.series.values():
                series.hide(event.step, wall)
        for tag, value in event.scalars:
            series_of_tag = self.series.get(tag)
            if series_of_tag is None:
                if not self._room.series:
                    self._room.omitted += 1
                    continue
                self._room.series -= 1
                series_of_tag = self.series[tag] = Series()
            series_of_tag.add(name, (event.step, wall, value))


def _hold(data: bytes, checksum: int, file: RecordFile) -> None:
    if masked_crc32c(data) != checksum:
        raise Damaged("the record at byte %d does not match its checksum" % file.offset)


MOST_POINTS = 1000
"""The most points that are kept of a series; of longer ones only every second, then every fourth, ..."""

MOST_FRESH = 1000
"""The most new points that are kept for followers between two reads."""


class Series:
    """`count`: how many points it has, with those that are not kept."""

    def __init__(self) -> None:
        self.count = 0
        self.fresh: Deque[Point] = deque(maxlen=MOST_FRESH)
        self.file = ""
        self.every = 1
        """Every how many points one is kept; the last point stays until the next one."""
        self.steps = array("q")
        self.times = array("d")
        self.values = array("d")

    @property
    def _columns(self) -> Tuple[array[Any], ...]:
        return self.steps, self.times, self.values

    def add(self, file: str, point: Point) -> None:
        """Adds a point of a file. A newer file hides points of older ones from its first step on.

        A restarted trainer goes back to its checkpoint, and writes the steps since then again.
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
        """The kept points, by their steps."""
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
    """At most `most` of the points, evenly spread, including the last one."""
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    between = (len(points) - 1) / (most - 1)
    return [points[round(index * between)] for index in range(most)]
