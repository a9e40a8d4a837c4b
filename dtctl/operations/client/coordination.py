"""What the coordinator of a run tells (cluster.json, docs/agent.md "Coordination")."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtctl.agent.records import whole_run as records
from dtctl.agent.records.reasons import Fact, fact, why_of
from dtctl.agent.run.run_events import RunEvent, events_of
from dtctl.model import TaskId, TaskState
from dtctl.operations.client.outcome import Verdict
from dtctl.operations.client.tasks import TaskStatus

if TYPE_CHECKING:
    from dtctl.agent.records.goodput import Account
    from dtctl.agent.records.vitals import Machine


@dataclass(frozen=True)
class Condition:
    """What held of a run since a moment (epoch seconds)."""

    verdict: Verdict
    since: float


@dataclass(frozen=True)
class Contact:
    """What the coordinator has of a host."""

    connected: bool
    heard: float | None
    over: bool
    """Nothing of the run is left to do there."""
    absent: bool = False
    """The run goes on without it."""
    machine: Machine | None = None
    """How busy it is."""

    @property
    def lost(self) -> bool:
        """It was there, and is not now, though the run is not over for it."""
        return not self.connected and self.heard is not None and not self.over


@dataclass(frozen=True)
class Incident:
    """A loss, and what was done about it; times in epoch seconds, steps if the training tells them."""

    id: int
    task: TaskId
    host: str
    noticed: float
    why: tuple[Fact, ...]
    restarted: tuple[TaskId, ...]
    collateral: Mapping[TaskId, tuple[Fact, ...]]
    """Tasks whose failure followed from it, and how each ended."""
    step: int | None
    back_to: int | None
    begun: float | None
    tells_steps: bool
    """Whether the run had told steps before: if not, nobody can say from outside that it trains."""
    recovered: float | None
    closed: str | None
    """Why nothing more is done about it, where it was not recovered from."""

    @property
    def steps_lost(self) -> int | None:
        if self.step is None or self.back_to is None:
            return None
        return max(0, self.step - self.back_to)

    @property
    def recovered_after_s(self) -> float | None:
        return None if self.recovered is None else self.recovered - self.noticed


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
    contacts: Mapping[str, Contact]
    tasks: Mapping[TaskId, TaskStatus]
    incidents: tuple[Incident, ...]
    restarts: int
    missing: str | None
    """Who the start waits for, and why."""
    happened: tuple[RunEvent, ...] = ()
    """What hooks are told of."""
    account: Account | None = None
    """Where its time went."""

    @property
    def lost_hosts(self) -> tuple[str, ...]:
        return tuple(host for host, contact in self.contacts.items() if contact.lost)

    @property
    def absent_hosts(self) -> tuple[str, ...]:
        return tuple(host for host, contact in self.contacts.items() if contact.absent)

    @property
    def isolated(self) -> bool:
        """It has no contact with any other host though it waits for them."""
        others = [contact for contact in self.contacts.values() if not (contact.over or contact.absent)]
        return len(self.contacts) > 1 and sum(contact.connected for contact in others) <= 1 < len(others)

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
            contacts={
                host: _contact(view["hosts"][host]) for host in dict.fromkeys(roster.values()) if host in view["hosts"]
            },
            tasks={task: _task(task, host, view["hosts"].get(host)) for task, host in roster.items()},
            incidents=tuple(map(_incident, view["incidents"])),
            restarts=view["restarts"],
            missing=view["missing"],
            happened=tuple(events_of(view)),
            account=view["account"],
        )


def _condition(entry: records.Condition) -> Condition:
    return Condition(Verdict.of(entry["type"], why_of(entry), entry["cause"]), entry["since"])


def _contact(entry: records.Contact) -> Contact:
    machine = entry["state"]["machine"] if entry["state"] is not None else None
    return Contact(entry["connected"], entry["heard"], entry["over"], entry["absent"], machine)


def _incident(entry: records.Incident) -> Incident:
    return Incident(
        id=entry["id"],
        task=TaskId.parse(entry["task"]),
        host=entry["host"],
        noticed=entry["noticed"],
        why=tuple(why_of(entry)),
        restarted=tuple(map(TaskId.parse, entry["tasks"])),
        collateral={TaskId.parse(one["task"]): tuple(why_of(one)) for one in entry["collateral"]},
        step=entry["step"],
        back_to=entry["back_to"],
        begun=entry["begun"],
        tells_steps=records.tells_steps(entry),
        recovered=entry["recovered"],
        closed=entry["closed"],
    )


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
    if _contact(known).lost and not status.state.final:
        last = fact("host_away", host=host, text=status.state.value)
        return dataclasses.replace(status, state=TaskState.LOST, since=known["heard"], why=(last,))
    return status
