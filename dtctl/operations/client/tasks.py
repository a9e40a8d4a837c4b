"""A task as its agent last told it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.reasons import Fact, fact, why_of
from dtctl.agent.run.policy import why_ended
from dtctl.model import TaskId, TaskState

if TYPE_CHECKING:
    from dtctl.agent.records.run_state import Entry, Past
    from dtctl.agent.records.vitals import Complaint


@dataclass(frozen=True)
class Exit:
    """How one attempt of a task ended. `asked`: dtctl had asked for it."""

    attempt: int
    started: float
    ended: float
    code: int | None
    signal: int | None
    asked: bool
    cause: str = ""
    """What its log tells of its end."""
    step: int | None = None
    """The last that it told."""
    short_of_memory: bool = False
    """The kernel ended processes for want of memory meanwhile."""
    early: bool = False
    """Those that it needs were not ready: it was not its own failure."""
    hung: tuple[Fact, ...] = ()
    """By what it was seen to hang, and where; its signal was dtctl's own then."""

    @classmethod
    def of(cls, past: Past) -> Exit:
        told = {**past, "hung": tuple(why_ended(past)) if past["hung"] else ()}
        return cls(**_same(told, [each.name for each in fields(cls)]))


@dataclass(frozen=True)
class LeftBehind:
    """A process that its trainer left behind."""

    pid: int
    command: str


@dataclass(frozen=True)
class TaskStatus:
    """One moment of a task; times are in epoch seconds of its host."""

    id: TaskId
    host: str
    state: TaskState
    attempt: int = 0
    restarts: int = 0
    pid: int | None = None
    since: float | None = None
    next_start: float | None = None
    why: tuple[Fact, ...] = ()
    ready: bool = False
    step: int | None = None
    step_line: str = ""
    """The line of its log that the step was read from; empty where an older agent has read it."""
    step_time: float | None = None
    rate: float | None = None
    """Steps a second."""
    loss: str | None = None
    """In the digits of its log."""
    output_time: float | None = None
    """When its log last grew."""
    code: int | None = None
    signal: int | None = None
    asked: bool = False
    tail: str = field(default="", repr=False)
    """The end of its log, once it has ended."""
    left_behind: tuple[LeftBehind, ...] = ()
    """Processes that it went away from, and that were ended then."""
    killed_after_s: float | None = None
    """The grace period after which it was killed; None if it was not."""
    left: int = 0
    """How many of its processes outlived SIGKILL."""
    history: tuple[Exit, ...] = field(default=(), repr=False)
    cpu: float | None = None
    """Processors that it kept busy lately."""
    memory_bytes: int | None = None
    throttled: float | None = None
    """In which share of the time its control group has used up the processors that it may."""
    idle_since: float | None = None
    """Since when it has done nothing at all."""
    first_step_s: float = 0.0
    """The longest that it took for its first step; 0: it has told none."""
    complaint: Complaint | None = None
    """What its log says since its last step, of others or of itself."""
    program: str = ""
    """What it was started with."""

    @classmethod
    def of(cls, task: TaskId, host: str, entry: Entry) -> TaskStatus:
        """From what its agent tells."""
        end = entry["exit"]
        return cls(
            id=task,
            host=host,
            state=TaskState(entry["state"]),
            why=tuple(why_of(entry)),
            step_line=entry["step_line"] if entry["step"] is not None else "",
            output_time=entry["progress"],
            code=end["code"] if end else None,
            signal=end["signal"] if end else None,
            tail=end["tail"] if end else "",
            left_behind=tuple(LeftBehind(one["pid"], one["command"]) for one in end["left_behind"]) if end else (),
            killed_after_s=end["killed_after_s"] if end else None,
            left=len(entry["left"]),
            history=tuple(map(Exit.of, entry["history"])),
            **_same(entry, _AS_TOLD),
        )


_AS_TOLD = (
    *("attempt", "restarts", "pid", "program", "since", "next_start", "ready", "asked", "complaint"),
    *("step", "step_time", "rate", "loss", "cpu", "memory_bytes", "throttled", "idle_since", "first_step_s"),
)
"""Fields that TaskStatus and the agent's Entry have by the same name."""


def _same(record: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: record[name] for name in names}


def how_it_ended(task: TaskStatus) -> tuple[Fact, ...]:
    """The reason that the agent gave, else the exit status."""
    if task.why:
        return task.why
    if task.signal is not None:
        return (fact("killed", signal=task.signal),)
    return (fact("exit_unknown") if task.code is None else fact("exited", code=task.code),)
