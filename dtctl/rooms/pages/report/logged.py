"""Curves from the steps and losses that the lead task logs, for a run that writes no event files."""

from __future__ import annotations

import math
import time

from dtctl.agent.supervise.step_reader import StepReader
from dtctl.errors import DtctlError
from dtctl.operations.client.persistent import PersistentTransport
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.logs.reading import read_logs
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.metrics.operation import Point, Series, rates_of

LINES = 3000
"""The most lines of each attempt that are read when the curve begins."""
POINTS = 400
_OVERLAP_S = 2.0
"""Lines of the last moment are read again: a log is dated to the second."""
NAME = "log"


class LoggedSteps:
    """The points of the lead's log, read on from where the last reading ended."""

    def __init__(self) -> None:
        self._points: dict[int, Point] = {}
        """By step: one that is made again replaces what was before."""
        self._losses: dict[int, Point] = {}
        self._reader = StepReader()
        self._attempt = 0
        self._end = 0
        self._last = 0.0
        """The time of the newest lines, by the clock of their host."""

    def read(self, record: RunRecord, transport: PersistentTransport) -> None:
        """Adds what the log has got since. A host without an answer leaves the curves as they are."""
        since = self._last - _OVERLAP_S if self._last else None
        wanted = LogRequest((record.lead,), lines=LINES, since=since, all_attempts=True)
        try:
            read_logs(record, transport, wanted, self._add)
        except DtctlError:  # the other parts of the page say what is wrong with the host
            return

    def _add(self, lines: LogLines) -> None:
        log = lines.log
        if (log["attempt"], log["end"]) <= (self._attempt, self._end) and not log["truncated"]:
            return
        if log["attempt"] != self._attempt:
            self._reader = StepReader()
        self._attempt, self._end, self._last = log["attempt"], log["end"], max(self._last, log["time"])
        for line in lines.data.splitlines(keepends=True):
            self._take(line, log["time"])

    def _take(self, line: bytes, at: float) -> None:
        found = self._reader.read(line)
        if found.step is None:
            return
        self._forget_after(found.step)
        self._points[found.step] = Point(found.step, at, math.nan)
        if found.loss is not None:
            self._losses[found.step] = Point(found.step, at, float(found.loss))

    def _forget_after(self, step: int) -> None:
        """Removes the steps that are made again, after a restart."""
        for points in (self._points, self._losses):
            while points and next(reversed(points)) >= step:
                points.popitem()

    def series(self, record: RunRecord) -> tuple[Series, ...]:
        """The loss and the rate; none where the log has no two steps."""
        losses, steps = [*self._losses.values()], [*self._points.values()]
        rates = [point for point in rates_of(_seconds_apart(steps)) if math.isfinite(point.value)]
        named = (("loss", losses), ("steps/s", rates))
        return tuple(_series(record, tag, points) for tag, points in named if len(points) > 1)


def logged_series(record: RunRecord, transport: PersistentTransport) -> tuple[Series, ...]:
    """The curves of a log as it is now."""
    steps = LoggedSteps()
    steps.read(record, transport)
    return steps.series(record)


def _seconds_apart(points: list[Point]) -> list[Point]:
    """Points with enough seconds between them for a rate, as logs are dated to the second."""
    if len(points) < 2:
        return points
    apart_s = max(5.0, (points[-1].time - points[0].time) / 60)
    kept = points[:1]
    for point in points[1:]:
        if point.time - kept[-1].time >= apart_s:
            kept.append(point)
    return kept


def _series(record: RunRecord, tag: str, points: list[Point]) -> Series:
    finite = [point.value for point in points if math.isfinite(point.value)]
    by = math.ceil(len(points) / POINTS)
    shown = points[::-1][::by][::-1]
    least, most = (min(finite), max(finite)) if finite else (None, None)
    host = record.roster[record.lead]
    return Series(tag, NAME, host, "", tuple(shown), len(points), least, most, time.time())
