"""What a report tells of a run, as one tree of values: who draws it, once or again and again, needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import Fact
from dtctl.errors import DtctlError
from dtctl.model import TaskId, TaskState
from dtctl.operations.events import Happening
from dtctl.operations.metrics import Metrics, Series
from dtctl.operations.report.configuration import Configuration
from dtctl.operations.status import RunStatus

if TYPE_CHECKING:
    from dtctl.model import TaskId


@dataclass(frozen=True)
class Span:
    """What a time was spent on, in seconds since the account was begun. `step`: the newest that was told by its end."""

    what: str
    begin_s: float
    end_s: float
    step: int | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(frozen=True)
class Gain:
    """What would raise the goodput by this share of the elapsed time.

    `checkpoints`: that there were any, at most. `save`: a checkpoint every `to_s` in place of `from_s`.
    `stall`: a limit of `to_s` for what hangs, where it took `from_s` to notice.
    `losses`: that `task` had not been lost, `count` times.
    """

    kind: str
    share: float
    from_s: float = 0.0
    to_s: float = 0.0
    task: TaskId | None = None
    count: int = 0


@dataclass(frozen=True)
class Goodput:
    """`seconds` of each part (the keys of `rules.PARTS`), which add up to `elapsed_s`."""

    since: float
    """Epoch seconds of the coordinator's host."""
    elapsed_s: float
    seconds: Mapping[str, float]
    spans: tuple[Span, ...]
    gains: tuple[Gain, ...] = ()
    """The largest first."""
    by_scalars: bool = False
    """The logs told no step; event files did."""

    @property
    def share(self) -> float:
        return self.share_of("kept")

    def share_of(self, what: str) -> float:
        return self.seconds.get(what, 0.0) / self.elapsed_s if self.elapsed_s else 0.0


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
    why: tuple[Fact, ...] = ()

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
    story: tuple[Happening, ...]
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
