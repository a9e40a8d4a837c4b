"""What is known of a run at one moment, as the signatures read it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtctl.agent.run.hangs import HANGS
from dtctl.agent.run.policy import gist
from dtctl.model import TaskId, TaskState

if TYPE_CHECKING:
    from dtctl.agent.records.reasons import Fact
    from dtctl.agent.records.vitals import DiagnoseResult, Machine, TaskVitals, Unreached
    from dtctl.operations.asking.tasks import Exit, TaskStatus
    from dtctl.operations.status import RunStatus

PYTHON = "PYTHON"
"""In commands, for the Python of a task that nobody has told; `dtctl plan` shows it."""

_PYTHON = re.compile(r"(?:^|/)(?:python|pypy)[\d.]*$")

ENDED = (TaskState.FAILED, TaskState.BACKOFF)
LIVING = (TaskState.PENDING, TaskState.STARTING, TaskState.RUNNING)

PROVEN_S = 60.0
"""A task that was started again and has run for so long does not fail the same way at once."""

_MORE_SAID_S = 15.0
"""A complaint is over when more has been written for so long."""


@dataclass(frozen=True)
class End:
    """How an attempt has ended that nobody had asked to. `times`: so many in a row by this cause."""

    code: int | None
    signal: int | None
    at: float | None
    cause: str
    log: str
    times: int = 1
    how: tuple[Fact, ...] = ()
    """As its agent says it, where there is neither code nor signal."""


@dataclass(frozen=True, eq=False)
class Facts:
    """`hosts`: what each has told of itself when it was asked; `status` asks none, and knows what agents sample."""

    status: RunStatus
    hosts: Mapping[str, DiagnoseResult] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return self.status.time

    @property
    def tasks(self) -> tuple[TaskStatus, ...]:
        return tuple(self.status.tasks.values())

    def vitals(self, task: TaskStatus) -> TaskVitals | None:
        told = self.hosts.get(task.host)
        return told["tasks"].get(str(task.id)) if told is not None else None

    def machines(self) -> Mapping[str, Machine]:
        return {**self.status.machines, **{host: told["machine"] for host, told in self.hosts.items()}}

    def address(self, task: TaskId) -> str:
        return self.status.record.addresses.get(task, "")

    def python(self, task: TaskStatus) -> str:
        told = self.vitals(task)
        program = (told["python"] if told is not None else "") or task.program
        return program if _PYTHON.search(program) else PYTHON

    def unreached(self, host: str, task: TaskId) -> Unreached | None:
        """What is in the way from a host to a task's address, where that was tried."""
        told = self.hosts.get(host)
        return next((one for one in told["unreached"] if one["task"] == str(task)), None) if told else None

    def age(self, then: float | None) -> float:
        """Seconds since then; 0 where it is not known."""
        return max(0.0, self.now - then) if then else 0.0

    def end_of(self, task: TaskStatus) -> End | None:
        """How it has ended; also the last end of one that was started again and has told no step since."""
        told = self.vitals(task)
        past = task.history[-1] if task.history else None
        if (past is not None and (past.asked or past.early)) or any(one["kind"] in HANGS for one in task.why):
            return None
        if task.state in ENDED:
            cause = next((one["text"] for one in task.why if one["kind"] == "cause"), past.cause if past else "")
            log = told["log"] if told is not None and told["log"] else task.tail
            at = past.ended if past else task.since
            return End(task.code, task.signal, at, cause, log, _in_a_row(task), task.why[:1])
        if task.state is TaskState.SUCCEEDED:
            return End(0, None, past.ended if past else task.since, "", task.tail)
        if past is not None and not past.hung and self._fails_again(task, past):
            return End(past.code, past.signal, past.ended, past.cause, "", _in_a_row(task))
        return None

    def _fails_again(self, task: TaskStatus, past: Exit) -> bool:
        """Whether one that was started again is likely to end as it has before. One that hung has left no cause."""
        young = task.state is not TaskState.RUNNING or self.age(task.since) < PROVEN_S
        told = bool(past.cause) or past.short_of_memory or _in_a_row(task) > 1
        return task.state in LIVING and task.step is None and young and told and bool(past.code or past.signal)

    def complaint(self, task: TaskStatus) -> str:
        """What a living task's log says since its last step, unless it has gone on to something else."""
        said = task.complaint
        if said is None or task.state is not TaskState.RUNNING:
            return ""
        return said["text"] if (task.output_time or 0.0) - said["last"] <= _MORE_SAID_S else ""

    def on(self, host: str) -> Iterator[TaskStatus]:
        return (task for task in self.tasks if task.host == host)


def _in_a_row(task: TaskStatus) -> int:
    """Endings by the same cause, the newest first."""
    ends = [past for past in reversed(task.history) if not past.asked]
    same = 0
    for past in ends:
        if (past.code, past.signal, gist(past.cause)) != (ends[0].code, ends[0].signal, gist(ends[0].cause)):
            break
        same += 1
    return max(1, same)
