"""A task as its agent last told it."""

from __future__ import annotations

from dataclasses import dataclass, field

from dtctl.agent.records.run_state import Entry
from dtctl.agent.run.policy import signal_name
from dtctl.model import TaskId, TaskState


@dataclass(frozen=True)
class Exit:
    """How one attempt of a task ended. `asked`: dtctl had asked for it."""

    attempt: int
    started: float
    ended: float
    code: int | None
    signal: int | None
    asked: bool


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
    reason: str = ""
    ready: bool = False
    step: int | None = None
    code: int | None = None
    signal: int | None = None
    asked: bool = False
    tail: str = field(default="", repr=False)
    """The end of its log, once it has ended."""
    left: int = 0
    """How many of its processes outlived SIGKILL."""
    history: tuple[Exit, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, task: TaskId, host: str, entry: Entry) -> TaskStatus:
        """As its agent tells it."""
        end = entry["exit"]
        return cls(
            id=task,
            host=host,
            state=TaskState(entry["state"]),
            attempt=entry["attempt"],
            restarts=entry["restarts"],
            pid=entry["pid"],
            since=entry["since"],
            next_start=entry["next_start"],
            reason=entry["reason"],
            ready=entry["ready"],
            step=entry["step"],
            code=end["code"] if end else None,
            signal=end["signal"] if end else None,
            asked=entry["asked"],
            tail=end["tail"] if end else "",
            left=len(entry["left"]),
            history=tuple(
                Exit(past["attempt"], past["started"], past["ended"], past["code"], past["signal"], past["asked"])
                for past in entry["history"]
            ),
        )


def how_it_ended(task: TaskStatus) -> str:
    """The reason that the agent gave, else the exit status in words."""
    return task.reason or exit_words(task.code, task.signal)


def exit_words(code: int | None, signal: int | None) -> str:
    """As shells count (128 + n), and by name."""
    if signal is not None:
        return f"killed by {signal_name(signal)} ({128 + signal})"
    return "exit code unknown" if code is None else f"exit code {code}"
