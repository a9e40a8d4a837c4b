"""The `times` file beside a log: how long the log was at what time, so that its lines can be dated."""

from __future__ import annotations

import os

from ..host import files, paths


class Samples:
    """Samples of one attempt. A line `EPOCH OFFSET` is added only when the log's size has changed."""

    def __init__(self, directory: str) -> None:
        self._log = os.path.join(directory, "log")
        self._times = os.path.join(directory, "times")
        self._size = self._last()

    def _last(self) -> int:
        words = paths.tail(self._times, 64).split()
        return int(words[-1]) if words and words[-1].isascii() and words[-1].isdigit() else 0

    def take(self, wall: float) -> None:
        try:
            size = files.look(self._log).st_size
        except OSError:
            return  # not begun, or no log
        if size == self._size:
            return
        try:
            paths.append_line(self._times, "%.3f %d" % (wall, size))
        except OSError:
            return  # the disk is full: the next sample will do
        self._size = size
