"""The values that the API returns: frozen, without references to hosts.

Times are in epoch seconds, durations in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from dtctl.agent.records.reasons import sentence, why_of
from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Revision, TaskState
from dtctl.operations.checkpoints import Checkpoints, Found, every
from dtctl.operations.figures import figures_of
from dtctl.operations.snapshot import Outcome, RunStatus, TaskStatus
from dtctl.render.format import number


@dataclass(frozen=True)
class Task:
    """One task at one moment."""

    name: str
    """JOB:INDEX, as worker:1."""
    host: str
    state: TaskState
    """A `str`: pending, starting, running, backoff, stalled, succeeded, failed, stopped, or lost (unknown)."""
    why: str
    """The reason for its state; empty if there is nothing to say."""
    attempt: int
    """How many times its process was started."""
    restarts: int
    """How many times it was started again: one less, once it was started."""
    exit_code: int | None
    """The exit code of its newest attempt; None while it runs, or if a signal ended it."""
    signal: int | None
    step: int | None
    """The newest training step that its log or its event files report; None if they report none."""
    steps_per_second: float | None
    loss: float | None
    log_tail: str
    """The last lines of an attempt that has ended."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint on a host."""

    path: str
    """The path without the suffixes of its files, as TensorFlow restores it."""
    step: int | None
    time: float
    """When it was written, in epoch seconds of its host."""
    size_bytes: int
    complete: bool
    """Whether all of its parts exist, on one host or on several."""
    hosts: tuple[str, ...]
    """The hosts that have parts of it."""
    problem: str
    """Why it is not complete; empty if it is."""


@dataclass(frozen=True)
class Status:
    """A run at one moment."""

    run: str
    cluster: str
    outcome: Outcome
    """A `str`: Created, Running, Restarting, Suspended, Succeeded, Failed or Stopped."""
    why: str
    cause: str | None
    """The task whose failure came first; of a failed run only."""
    tasks: Mapping[str, Task]
    """The tasks by name, in the order of the cluster file."""
    started: float
    """The start in epoch seconds, by the clock of the machine that started it."""
    step: int | None
    target_step: int | None
    """The step at which the training ends, if the trainer's arguments say so."""
    steps_per_second: float | None
    """Now; None while no task reports it."""
    seconds_left: float | None
    loss: float | None
    """The newest that the lead task has reported."""
    checkpoint: Checkpoint | None
    """The newest complete one."""
    goodput: float | None
    """The share of the elapsed time that went into steps that were kept, from 0 to 1; None while unknown."""
    restarts: int
    """The restarts of all tasks."""
    over: bool
    """The outcome is certain, and no task runs any more."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    """Host -> why it gave no answer. Its tasks may be `lost`: their state is unknown."""
    revision: Revision | None = None
    """The version of the code; None if it was in no repository."""

    @property
    def succeeded(self) -> bool:
        return self.outcome.value == "Succeeded"

    def __str__(self) -> str:
        of = f" of {self.target_step}" if self.target_step is not None else ""
        step = f", step {self.step}{of}" if self.step is not None else ""
        from dtctl.render.terminal.safe import one_line

        return one_line(f"{self.run}: {self.outcome.value}, {self.why}{step}")


@dataclass(frozen=True)
class LogLine:
    """One line that a task has printed. `str` has the name of its task, and is safe for a terminal."""

    task: str
    text: str
    """The line as the trainer wrote it, without its end; of a progress bar its last state."""
    time: float
    """About when it was written, and not later, in epoch seconds of its host."""
    attempt: int

    def __str__(self) -> str:
        from dtctl.render.terminal.safe import one_line

        return f"{self.task} | {one_line(self.text)}"


@dataclass(frozen=True)
class Event:
    """One entry of the event history. `str` is the line that `dtctl events` shows, safe for a terminal."""

    time: float
    """In epoch seconds, by the clock of the coordinator's host."""
    kind: str
    """task (a change of its state), condition (of the run), request, contact, ..."""
    task: str | None
    host: str | None
    attempt: int | None
    before: str | None
    """The previous state, for a change of state."""
    after: str | None
    why: str
    line: str = field(repr=False)

    def __str__(self) -> str:
        from dtctl.render.terminal.safe import one_line

        return one_line(self.line)


@dataclass(frozen=True)
class Command:
    """The result of a command in one place."""

    exit_code: int
    """128 and the signal for what a signal has ended."""
    stdout: str
    stderr: str


def event_of(one: HistoryEvent) -> Event:
    from dtctl.render.events import event_line

    why = sentence(why_of(one))
    return Event(
        one["time"], one["kind"], one["task"], one["host"], one["attempt"], one["from"], one["to"], why, event_line(one)
    )


def status_of(found: RunStatus) -> Status:
    figures, newest = figures_of(found), found.newest_checkpoint
    complete = [one for one in checkpoints_of([newest]) if one.complete] if newest is not None else []
    return Status(
        run=found.record.run or "",
        cluster=found.record.cluster,
        outcome=found.verdict.outcome,
        why=sentence(found.verdict.why),
        cause=str(found.verdict.cause) if found.verdict.cause else None,
        tasks={str(task): _task_of(one) for task, one in found.tasks.items()},
        started=found.record.created,
        step=figures.step,
        target_step=figures.target,
        steps_per_second=figures.rate,
        seconds_left=figures.left_s,
        loss=number(figures.loss),
        checkpoint=complete[0] if complete else None,
        goodput=figures.goodput.share if figures.goodput is not None else None,
        restarts=figures.restarts,
        over=found.is_over,
        revision=found.record.revision,
        errors=found.errors,
    )


def _task_of(task: TaskStatus) -> Task:
    entry = task.entry
    return Task(
        name=str(task.id),
        host=task.host,
        state=task.state,
        why=sentence(task.why),
        attempt=entry["attempt"],
        restarts=task.restarts,
        exit_code=task.exit["code"],
        signal=task.exit["signal"],
        step=entry["step"],
        steps_per_second=entry["rate"],
        loss=number(entry["loss"]),
        log_tail=task.exit["tail"],
    )


def checkpoints_of(found: Sequence[Checkpoints]) -> list[Checkpoint]:
    """The newest first."""
    return [_checkpoint_of(one) for one in every(found)]


def _checkpoint_of(one: Found) -> Checkpoint:
    return Checkpoint(
        path=one.path,
        step=one.checkpoint["step"],
        time=one.checkpoint["time"],
        size_bytes=one.checkpoint["size_bytes"],
        complete=one.whole,
        hosts=one.hosts,
        problem="" if one.whole else one.checkpoint["problem"] or "",
    )
