"""What a report tells of a run, as one tree of values: who draws it, once or again and again, needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import Fact
from dtctl.agent.records.whole_run import StoryLine
from dtctl.errors import DtctlError
from dtctl.model import TaskId, TaskState
from dtctl.operations.metrics import Metrics, Series
from dtctl.operations.report.configuration import Configuration
from dtctl.operations.report.goodput import Goodput
from dtctl.operations.snapshot import RunStatus

if TYPE_CHECKING:
    from dtctl.model import TaskId


@dataclass(frozen=True)
class Bar:
    """A task in one state, in epoch seconds of its host."""

    state: TaskState
    begin: float
    end: float


@dataclass(frozen=True)
class Attempt:
    """One start of a task: its states in order, how it ended if it has, and why."""

    number: int
    bars: tuple[Bar, ...]
    state: TaskState
    """What it came to, or is in."""
    why: Sequence[Fact] = ()

    @property
    def begin(self) -> float:
        return self.bars[0].begin

    @property
    def end(self) -> float:
        return self.bars[-1].end


@dataclass(frozen=True)
class TaskLine:
    """All attempts of a task that are known, oldest first."""

    task: TaskId
    host: str
    state: TaskState
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Timeline:
    """From `begin` to `end`, in epoch seconds. `cut`: there was more before than was asked for."""

    begin: float
    end: float
    tasks: tuple[TaskLine, ...]
    cut: bool = False


@dataclass(frozen=True)
class HostFacts:
    """What a host tells of itself; empty or 0 where it did not. `gpus`: as the cluster file says."""

    name: str
    tasks: tuple[TaskId, ...]
    system: str = ""
    python: str = ""
    hostname: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    free_bytes: int = 0
    gpus: int = 0


@dataclass(frozen=True)
class Report:
    """One moment of a run, and its past."""

    made: float
    """Epoch seconds of this machine."""
    dtctl: str
    python: str
    """Of this machine."""
    status: RunStatus
    goodput: Goodput | None
    timeline: Timeline
    story: tuple[StoryLine, ...]
    """Less what stands in the timeline."""
    scalars: Metrics
    rates: tuple[Series, ...]
    """Steps a second, as the scalars' own times tell them."""
    hosts: tuple[HostFacts, ...]
    configuration: Configuration
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    """Host -> why it gave no answer, or not every one."""
    unasked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Host -> `events`, `metrics`: what it was not asked for any more, as it had not finished an earlier answer."""
