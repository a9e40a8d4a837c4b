"""One directory with event files: what TensorBoard calls a run, as `train` and `validation` of Keras are."""

from __future__ import annotations

import math
import os
from contextlib import suppress

from ..host import files
from ..host.crc32c import masked_crc32c
from ..records.kinds import MOST
from ..records.metrics import MOST_PROBLEMS
from ..records.values import LAST_EPOCH, brief
from .event_files import folder_at
from .events import Damaged, RecordFile, Replaced, decode
from .series import Series

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from ..records.metrics import FolderPoints, SeriesPoints
    from .events import Event


_ALWAYS_CHECKED_BYTES = 4096
"""Larger records are checked when they hold a scalar: of images nothing is used."""


class Room:
    """How many series there may still be, in all folders."""

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
        """By the names of files, why they are not read further."""
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
        """These are its event files now: how much there is to be read, in case that there will be no time for it."""
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
        except Replaced:  # it was written anew: all is read once more
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
            event = decode(data, self.series)
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
