"""What the coordinator of a run tells (cluster.json, docs/agent.md "Coordination")."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from dtctl.agent.records import whole_run as records
from dtctl.agent.records.reasons import Fact, fact, why_of
from dtctl.agent.run.policy import why_ended
from dtctl.agent.run.run_events import RunEvent, events_of
from dtctl.model import TaskId, TaskState
from dtctl.operations.client.outcome import Verdict

if TYPE_CHECKING:
    from dtctl.agent.records.run_state import Entry, Past
    from dtctl.agent.records.vitals import Complaint
    from dtctl.agent.records.whole_run import Account


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


@dataclass(frozen=True)
class Condition:
    """What held of a run since a moment (epoch seconds)."""

    verdict: Verdict
    since: float


@dataclass(frozen=True)
class Coordination:
    """A run as its coordinator sees it. Tasks of hosts that it has lost are `lost`: nobody can tell."""

    run: str
    time: float
    phase: str
    """starting, running, recovering, finishing or ended."""
    condition: Condition
    past: tuple[Condition, ...]
    warnings: tuple[str, ...]
    contacts: Mapping[str, records.Contact]
    tasks: Mapping[TaskId, TaskStatus]
    incidents: Sequence[records.Incident]
    restarts: int
    missing: str | None
    """Who the start waits for, and why."""
    happened: tuple[RunEvent, ...] = ()
    """What hooks are told of."""
    account: Account | None = None
    """Where its time went."""

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        return tuple(host for host, contact in self.contacts.items() if is_lost(contact))

    @property
    def absent_hosts(self) -> tuple[str, ...]:
        return tuple(host for host, contact in self.contacts.items() if contact["absent"])

    @property
    def isolated(self) -> bool:
        """It has no contact with any other host though it waits for them."""
        others = [contact for contact in self.contacts.values() if not (contact["over"] or contact["absent"])]
        return len(self.contacts) > 1 and sum(contact["connected"] for contact in others) <= 1 < len(others)

    @classmethod
    def of(cls, view: records.RunView, roster: Mapping[TaskId, str]) -> Coordination:
        """`roster`: task -> host, in the order to show them; what the coordinator tells of other hosts is ignored."""
        return cls(
            run=view["run"],
            time=view["time"],
            phase=view["phase"],
            condition=_condition(view["condition"]),
            past=tuple(map(_condition, view["conditions"])),
            warnings=tuple(view["warnings"]),
            contacts={host: view["hosts"][host] for host in dict.fromkeys(roster.values()) if host in view["hosts"]},
            tasks={task: _task(task, host, view["hosts"].get(host)) for task, host in roster.items()},
            incidents=view["incidents"],
            restarts=view["restarts"],
            missing=view["missing"],
            happened=tuple(events_of(view)),
            account=view["account"],
        )


def _condition(entry: records.Condition) -> Condition:
    return Condition(Verdict.of(entry["type"], why_of(entry), entry["cause"]), entry["since"])


def is_lost(contact: records.Contact) -> bool:
    """The host was there, and is not now, though the run is not over for it."""
    return not contact["connected"] and contact["heard"] is not None and not contact["over"]


def steps_lost(incident: records.Incident) -> int | None:
    if incident["step"] is None or incident["back_to"] is None:
        return None
    return max(0, incident["step"] - incident["back_to"])


def recovered_after_s(incident: records.Incident) -> float | None:
    return None if incident["recovered"] is None else incident["recovered"] - incident["noticed"]


def _task(task: TaskId, host: str, known: records.Contact | None) -> TaskStatus:
    """An end is certain whatever becomes of the host afterwards; anything else is not while it is away."""
    if known is None:
        return TaskStatus(task, host, TaskState.LOST, why=(fact("no_part"),))
    if known["absent"]:
        return TaskStatus(task, host, TaskState.PENDING, why=(fact("absent"),))
    if known["state"] is None:
        return TaskStatus(task, host, TaskState.PENDING, why=(fact("not_heard"),))
    entry = known["state"]["tasks"].get(str(task))
    if entry is None:
        return TaskStatus(task, host, TaskState.LOST, why=(fact("task_unknown"),))
    status = TaskStatus.of(task, host, entry)
    if is_lost(known) and not status.state.final:
        last = fact("host_away", host=host, text=status.state.value)
        return dataclasses.replace(status, state=TaskState.LOST, since=known["heard"], why=(last,))
    return status
