"""What the screen shows: a moment of the run, and what the person who looks has chosen. Pure values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

from dtctl.model import TaskId, TaskState
from dtctl.operations.client.streams import Away
from dtctl.operations.status import RunStatus
from dtctl.render.health.findings import ended_in_problem, problem_lines
from dtctl.render.terminal.safe import one_line

Line = list[tuple[str, str]]
"""Text and style of each piece, safe for a screen."""


class Problem:
    """What `dtctl status` tells to be wrong; looked for once, when it is first asked for."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status

    @functools.cached_property
    def lines(self) -> list[str]:
        return problem_lines(self._status)

    @functools.cached_property
    def ended(self) -> frozenset[TaskId]:
        """The tasks whose end stands there."""
        return ended_in_problem(self._status)


@dataclass(frozen=True)
class Moment:
    """What is known of the run."""

    status: RunStatus
    now: float
    """Epoch seconds on the lead's host; the status may be some seconds old."""
    over: bool = False
    """Nothing more will happen."""
    broken: Mapping[str, Away] = field(default_factory=dict)
    """Hosts whose conversation is broken."""

    found: Problem | None = None
    """Of this status, where there has been a moment of it before."""

    @functools.cached_property
    def problem(self) -> Problem:
        return self.found or Problem(self.status)

    @property
    def status_now(self) -> RunStatus:
        """The status with its ages as they are now."""
        return dataclasses.replace(self.status, time=self.now)


@dataclass(frozen=True)
class Choice:
    """How a person wants to see the tasks."""

    sort: str = "TASK"
    """Heading of a column."""
    backwards: bool = False
    words: str = ""
    """A task is shown when each of them is found in its row."""
    folded: frozenset[str] = frozenset()
    """Jobs whose tasks are one row."""

    def folding(self, job: str) -> Choice:
        """With the job folded, or no more."""
        return dataclasses.replace(self, folded=self.folded ^ {job})

    def folding_all(self, jobs: frozenset[str]) -> Choice:
        return dataclasses.replace(self, folded=frozenset() if self.folded >= jobs else jobs)


WORST_FIRST = (
    *(TaskState.FAILED, TaskState.LOST, TaskState.STALLED, TaskState.BACKOFF, TaskState.STARTING, TaskState.PENDING),
    *(TaskState.RUNNING, TaskState.STOPPED, TaskState.SUCCEEDED),
)


def jobs_of(moment: Moment) -> dict[str, list[TaskId]]:
    """In the order of the run."""
    found: dict[str, list[TaskId]] = {}
    for task in moment.status.tasks:
        found.setdefault(task.job, []).append(task)
    return found


def safe(text: str) -> str:
    """One line of text from wherever, in as many columns as its characters have."""
    return one_line(text).replace("\t", " ")
