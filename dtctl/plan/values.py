"""What a plan consists of: values that print, compare and travel; nothing here decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dtctl.agent.records.marks import CODE, HOME, PATH

if TYPE_CHECKING:
    from dtctl.model import Cluster, TaskId
    from dtctl.plan.directories import Directories
    from dtctl.plan.run import Stage
    from dtctl.strategies import Role, Scope, Strategy


SuccessRule = Literal["lead", "all-workers"]


@dataclass(frozen=True)
class Part:
    """What a task is to its run: where it is, and what its end, its loss and its success mean to the others."""

    id: TaskId
    host: str
    role: Role
    scope: Scope
    vital: bool
    """Its failure for good is that of the run."""
    decides: bool
    """Its success is, with that of the others that decide, the run's."""
    serves: bool
    """It ends when it is told to, after those whom it serves."""


@dataclass(frozen=True)
class TaskPlan(Part):
    """One trainer process: what it is given. Strings may hold marks (agent.records.marks)."""

    address: str
    """host:port, as the other tasks reach it."""
    port: int
    gpus: tuple[int, ...] | None
    """Indexes of the host's GPUs that the task sees; None: the host's GPUs are not declared, and none are hidden."""
    argv: tuple[str, ...]
    placed: int
    """How many of its last words tell the task its place."""
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    keep_proxy: bool
    ready: Literal["listening", "started"]
    """When those that wait for it may start: its port listens, or it runs."""


@dataclass(frozen=True)
class Coordinator:
    """The agent that decides for the whole run, on the lead's host."""

    host: str
    address: str
    """host:port, as the agents of the other hosts reach it."""
    port: int


@dataclass(frozen=True)
class Roster:
    """Who does what in the runs of a cluster: all of a plan that needs no word of how hosts are reached."""

    cluster: Cluster
    tasks: tuple[Part, ...]
    """In the order of the file."""
    lead: TaskId
    success: SuccessRule
    strategy: Strategy

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that have a task, in the order of the file."""
        used = {task.host for task in self.tasks}
        return tuple(name for name in self.cluster.hosts if name in used)


@dataclass(frozen=True)
class RunPlan(Roster):
    """Everything that one `dtctl up` would start."""

    tasks: tuple[TaskPlan, ...]
    stages: tuple[Stage, ...]
    """In an order in which they may start."""
    coordinator: Coordinator
    needs_checkpoint: bool
    """A ps that is lost takes parameters with it that only a complete checkpoint can bring back."""
    settle_s: float
    target_step: int | None
    dirs: Mapping[str, Directories]
    """By host."""
    checkpoint_dirs: Mapping[str, tuple[str, ...]]
    """By host, with marks."""

    def on_host(self, host: str) -> tuple[TaskPlan, ...]:
        return tuple(task for task in self.tasks if task.host == host)


_SHOWN = {HOME: "~", CODE: "{code}", PATH: "$PATH"}


def shown(text: str) -> str:
    """`text` for a person: the marks as the words that stand for them in a plan."""
    for mark, words in _SHOWN.items():
        text = text.replace(mark, words)
    return text
