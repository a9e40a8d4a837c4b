"""How values have moved, kept in bounded space: what the small curves of the screen are drawn from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from dtctl.model import TaskId
from dtctl.operations.metrics import Point
from dtctl.operations.status import RunStatus

MOST = 120
"""Values of one course; a line of the screen has room for no more."""

_LEAST_APART_S = 1.0


class Course:
    """Values over time, evenly thinned as it grows: the whole of it stays in sight."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._points: list[tuple[float, float]] = []
        self._apart_s = _LEAST_APART_S

    def add(self, time: float, value: float) -> None:
        """In the order of time; of values that come close to each other the last counts."""
        if self._points and time - self._points[-1][0] < self._apart_s:
            self._points[-1] = (self._points[-1][0], value)
            return
        self._points.append((time, value))
        if len(self._points) > self._most:
            self._points = self._points[::2]
            self._apart_s *= 2

    @property
    def values(self) -> list[float]:
        return [value for _, value in self._points]


class Courses:
    """Rate and loss of each task and of the run, since somebody looks."""

    def __init__(self) -> None:
        self._run: str | None = None
        self.run_rate, self.run_loss = Course(), Course()
        self._rates: dict[TaskId, Course] = {}
        self._losses: dict[TaskId, Course] = {}
        self._seen: dict[TaskId, float] = {}
        """When each task told its last step that counts."""

    def add(self, status: RunStatus) -> None:
        """Of another run everything begins anew."""
        if status.record.run != self._run:
            self.__init__()  # type: ignore[misc]
            self._run = status.record.run
        for task in status.tasks.values():
            if task.step_time is None or task.step_time <= self._seen.get(task.id, -math.inf):
                continue
            self._seen[task.id] = task.step_time
            if task.rate is not None:
                self._rates.setdefault(task.id, Course()).add(task.step_time, task.rate)
            if (loss := number(task.loss)) is not None:
                self._losses.setdefault(task.id, Course()).add(task.step_time, loss)
        progress = status.progress
        if progress.step_time is not None and progress.rate is not None:
            self.run_rate.add(progress.step_time, progress.rate)
        if progress.step_time is not None and (loss := number(progress.loss)) is not None:
            self.run_loss.add(progress.step_time, loss)

    def rate(self, task: TaskId) -> list[float]:
        return self._rates[task].values if task in self._rates else []

    def loss(self, task: TaskId) -> list[float]:
        return self._losses[task].values if task in self._losses else []


def number(text: str | None) -> float | None:
    """Of a loss in the digits of its log."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def rates_of(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Steps a second between points of an event file, at their steps; where the training went back there is a gap."""
    return [
        (
            float(after.step),
            (after.step - before.step) / (after.time - before.time)
            if after.step > before.step and after.time > before.time
            else math.nan,
        )
        for before, after in itertools.pairwise(points)
    ]


def latest(values: Iterable[float], most: int) -> list[float]:
    """The last so many."""
    return list(values)[-most:]
