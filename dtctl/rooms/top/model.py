"""The data of the screen: the run, the history of its values, and the user's choices."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import field

from dtctl.dataclass import dataclass
from dtctl.model import TaskId, grouped
from dtctl.operations.client.streams import Disconnected, Feed, Reconnected
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.watch import Over
from dtctl.render.findings import ended_in_problem, problem_lines
from dtctl.render.format import number
from dtctl.render.terminal.safe import one_line
from dtctl.rooms.metrics.operation import Losses, Series
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.telling_screen import told

Line = list[tuple[str, str]]
"""Text and style of each piece, safe for a screen."""


class Problem:
    """The problem that `dtctl status` reports; computed once, on demand."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status

    @functools.cached_property
    def lines(self) -> list[str]:
        return problem_lines(self._status)

    @functools.cached_property
    def ended(self) -> frozenset[TaskId]:
        """The tasks whose end it reports."""
        return ended_in_problem(self._status)


@dataclass(frozen=True)
class Snapshot:
    """The known state of the run."""

    status: RunStatus
    now: float
    """Epoch seconds on the lead's host; the status may be some seconds old."""
    over: bool = False
    """Whether nothing more will happen."""
    broken: Mapping[str, Disconnected] = field(default_factory=dict)
    """Hosts whose conversation is broken."""

    slow: str = ""
    """Why the run is not faster, if a cause is known."""
    found: Problem | None = None
    """The problem of this status, if an earlier snapshot has computed it."""

    @functools.cached_property
    def problem(self) -> Problem:
        return self.found or Problem(self.status)

    @property
    def status_now(self) -> RunStatus:
        """The status with its current ages."""
        return dataclasses.replace(self.status, time=self.now)


@dataclass(frozen=True)
class Choice:
    """The user's choice of how to show the tasks."""

    sort: str = "TASK"
    """The heading of the column to sort by."""
    backwards: bool = False
    filter: str = ""
    """A task is shown if all of these words are in its row."""
    folded: frozenset[str] = frozenset()
    """Jobs whose tasks share one row."""

    def folding(self, job: str) -> Choice:
        """The choice with the job folded, or unfolded if it was."""
        return dataclasses.replace(self, folded=self.folded ^ {job})

    def folding_all(self, jobs: frozenset[str]) -> Choice:
        return dataclasses.replace(self, folded=frozenset() if self.folded >= jobs else jobs)


def jobs_of(snapshot: Snapshot) -> dict[str, list[TaskId]]:
    """The tasks of each job, in the order of the run."""
    return grouped((task.job, task) for task in snapshot.status.tasks)


def safe(text: str) -> str:
    """Any text as one line, with as many columns as its characters have."""
    return one_line(text).replace("\t", " ")


MOST = 120
"""The most values of one history; a line of the screen has room for no more."""

_LEAST_APART_S = 1.0


class History:
    """Values over time, evenly thinned as it grows, so that the whole time remains visible."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._points: list[tuple[float, float]] = []
        self._apart_s = _LEAST_APART_S

    def add(self, time: float, value: float) -> None:
        """Adds a value, in the order of time; of values that are close to each other the last is kept."""
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


class Histories:
    """Rate and loss of each task and of the run, since the screen was opened."""

    def __init__(self) -> None:
        self._run: str | None = None
        self.run_rate, self.run_loss = History(), History()
        self._rates: dict[TaskId, History] = {}
        self._losses: dict[TaskId, History] = {}
        self._seen: dict[TaskId, float] = {}
        """The time of each task's last step that was counted."""

    def add(self, status: RunStatus) -> None:
        """Adds the values of a status. All curves start again for another run."""
        if status.record.run != self._run:
            self.__init__()  # type: ignore[misc]
            self._run = status.record.run
        for task in status.tasks.values():
            if task.entry["step_time"] is None or task.entry["step_time"] <= self._seen.get(task.id, -math.inf):
                continue
            self._seen[task.id] = task.entry["step_time"]
            if task.entry["rate"] is not None:
                self._rates.setdefault(task.id, History()).add(task.entry["step_time"], task.entry["rate"])
            if (loss := number(task.entry["loss"])) is not None:
                self._losses.setdefault(task.id, History()).add(task.entry["step_time"], loss)
        progress = status.progress
        if progress.step_time is not None and progress.rate is not None:
            self.run_rate.add(progress.step_time, progress.rate)
        if progress.step_time is not None and (loss := number(progress.loss)) is not None:
            self.run_loss.add(progress.step_time, loss)

    def rate(self, task: TaskId) -> list[float]:
        return self._rates[task].values if task in self._rates else []

    def loss(self, task: TaskId) -> list[float]:
        return self._losses[task].values if task in self._losses else []


class Model:
    """The state of the screen, from the streams of the run, its loss and speed. Times are of the monotonic clock."""

    def __init__(self, run: Feed, loss: Feed, speed: Feed) -> None:
        self.histories = Histories()
        self.losses = Losses()
        self._run, self._loss, self._speed = run, loss, speed
        self._slow = ""
        self._status: RunStatus | None = None
        self._problem: Problem | None = None
        self._received_at = 0.0
        self._over = False
        self._broken: dict[str, Disconnected] = {}

    def poll(self, now: float) -> bool:
        """Whether there is news. Raises the error that ended the stream of the run."""
        events = self._run.take()
        for event in events:
            self._receive(event, now)
        points = [one for one in self._loss.take() if isinstance(one, Series)]  # the end of this stream does not matter
        for series in points:
            self.losses.add(series)
        judged = [one for one in self._speed.take() if isinstance(one, Speed)]  # nor does that of this one
        for speed in judged:
            self._slow = next((one.head for one in told(speed)), "")
        return bool(events or points or judged)

    @property
    def status(self) -> RunStatus | None:
        """The last status."""
        return self._status

    def snapshot(self, now: float) -> Snapshot | None:
        """The current snapshot; None before anything is known."""
        if self._status is None:
            return None
        age_s = 0.0 if self._status.verdict.outcome.decided else now - self._received_at
        slow = "" if self._status.is_over else self._slow
        return Snapshot(self._status, self._status.time + age_s, self._over, dict(self._broken), slow, self._problem)

    def _receive(self, event: object, now: float) -> None:
        if isinstance(event, BaseException):
            raise event
        if isinstance(event, RunStatus):
            self._status, self._received_at = event, now
            self._problem = Problem(event)
            self._broken = self._broken if event.coordination is None else {}
            self.histories.add(event)
        elif isinstance(event, Disconnected):
            self._broken[event.host] = event
        elif isinstance(event, Reconnected):
            self._broken.pop(event.host, None)
        elif isinstance(event, Over):
            self._over = True
