"""What the coordinator of a run tells (cluster.json, docs/agent.md "Coordination")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, fact, why_of
from dtctl.agent.records.run_state import Entry, Exit
from dtctl.agent.run.policy import why_ended
from dtctl.agent.run.run_events import RunEvent, events_of
from dtctl.model import TaskId, TaskState
from dtctl.operations.client.outcome import Verdict

if TYPE_CHECKING:
    from dtctl.agent.records.whole_run import Contact, Incident, RunView


NOTHING_KNOWN = made(Entry)
_NOT_ENDED = made(Exit)


@dataclass(frozen=True)
class TaskStatus:
    """One moment of a task; times are in epoch seconds of its host."""

    id: TaskId
    host: str
    state: TaskState
    """As the agent reports it, or `lost`."""
    entry: Entry = field(default_factory=lambda: NOTHING_KNOWN, repr=False)
    """What its agent reports; of a task that is lost the reason is the controller's."""

    @classmethod
    def of(cls, task: TaskId, host: str, entry: Entry) -> TaskStatus:
        return cls(task, host, TaskState(entry["state"]), entry)

    @classmethod
    def unknown(cls, task: TaskId, host: str, why: Fact, state: TaskState = TaskState.LOST) -> TaskStatus:
        """Of which its agent has reported nothing."""
        return cls(task, host, state, {**NOTHING_KNOWN, "why": [why]})

    @property
    def why(self) -> list[Fact]:
        return why_of(self.entry)

    @property
    def exit(self) -> Exit:
        """How its newest attempt has ended; without code and signal while it has not."""
        return self.entry["exit"] or _NOT_ENDED


def how_it_ended(task: TaskStatus) -> list[Fact]:
    """The reason that the agent gave, else the exit status."""
    return task.why or why_ended(task.exit)


@dataclass(frozen=True)
class Coordination:
    """A run as its coordinator sees it. Tasks of hosts that it has lost are `lost`: nobody can tell."""

    view: RunView
    """With the hosts of the roster alone, in its order."""
    tasks: Mapping[TaskId, TaskStatus]

    @property
    def contacts(self) -> Mapping[str, Contact]:
        return self.view["hosts"]

    @property
    def verdict(self) -> Verdict:
        return Verdict.of_condition(self.view["condition"])

    @property
    def events(self) -> list[RunEvent]:
        """What hooks are sent."""
        return events_of(self.view)

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
    def of(cls, view: RunView, roster: Mapping[TaskId, str]) -> Coordination:
        """`roster`: task -> host, in the order to show them; what the coordinator reports of other hosts is ignored."""
        hosts = {host: view["hosts"][host] for host in dict.fromkeys(roster.values()) if host in view["hosts"]}
        tasks = {task: _task(task, host, hosts.get(host)) for task, host in roster.items()}
        return cls({**view, "hosts": hosts}, tasks)


def is_lost(contact: Contact) -> bool:
    """The host was there, and is not now, though the run is not over for it."""
    return not contact["connected"] and contact["heard"] is not None and not contact["over"]


def steps_lost(incident: Incident) -> int | None:
    if incident["step"] is None or incident["back_to"] is None:
        return None
    return max(0, incident["step"] - incident["back_to"])


def recovered_after_s(incident: Incident) -> float | None:
    return None if incident["recovered"] is None else incident["recovered"] - incident["noticed"]


def _task(task: TaskId, host: str, known: Contact | None) -> TaskStatus:
    """An end is certain whatever becomes of the host afterwards; anything else is not while it is away."""
    if known is None:
        return TaskStatus.unknown(task, host, fact("no_part"))
    if known["absent"] or known["state"] is None:
        why = fact("absent" if known["absent"] else "not_heard")
        return TaskStatus.unknown(task, host, why, TaskState.PENDING)
    entry = known["state"]["tasks"].get(str(task))
    if entry is None:
        return TaskStatus.unknown(task, host, fact("task_unknown"))
    status = TaskStatus.of(task, host, entry)
    if is_lost(known) and not status.state.final:
        last = fact("host_away", host=host, text=status.state.value)
        return TaskStatus(task, host, TaskState.LOST, {**entry, "since": known["heard"], "why": [last]})
    return status
