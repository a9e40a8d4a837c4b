"""How far a stop is, as the hosts tell it while they wait for their tasks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dtctl.agent.records import answers as records
from dtctl.model import Host, TaskId
from dtctl.operations.client.coordinator import CoordinatorAway, First, why_alone
from dtctl.operations.history.record import RunRecord
from dtctl.operations.status import request_of_status, told_by_coordinator
from dtctl.transport.seam import Message

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.history.record import RunRecord
    from dtctl.transport.seam import Session


Way = Literal["waits", "saving", "killed", "ended", "away"]


@dataclass(frozen=True)
class Leaving:
    """One task that is being stopped.

    It waits for others, or was sent SIGTERM and saves, or outlives SIGKILL, or has ended; `away`: nobody can tell.
    """

    way: Way
    for_s: float | None = None
    """Since it was sent SIGTERM, until it had ended; None: it was not, or before this stop was asked for."""
    signal: int | None = None
    """That has ended it."""


@dataclass(frozen=True)
class Stopping:
    """What is news of the tasks that are being stopped."""

    grace_s: float
    tasks: Mapping[TaskId, Leaving]


OnStopping = Callable[[Stopping], None]


def unseen(stopping: Stopping) -> None:
    """Where nobody watches."""


def listener(record: RunRecord, report: OnStopping) -> Mapping[str, Callable[[Host, Message], None]]:
    """For `Request.heard`.

    A host speaks of its own tasks, and of all of them where it coordinates the run. Others are passed over: what is
    known here of the run may be old, and this is for the screen alone.
    """

    def hear(host: Host, message: Message) -> None:
        told = message.of(records.Stopping)
        known = record.roster if host.name == record.coordinator else record.tasks_on(host.name)
        tasks = {TaskId.parse(name): _leaving(one) for name, one in told["tasks"].items()}
        if shown := {task: one for task, one in tasks.items() if task in known}:
            report(Stopping(told["grace_s"], shown))

    return {"stopping": hear}


def _leaving(told: records.Leaving) -> Leaving:
    return Leaving(told["way"], told["for_s"], told["signal"])


@dataclass(frozen=True)
class Ending:
    """`tasks`: those that are asked to end and have not ended yet, as far as anybody can tell."""

    run: str | None
    """None: no host that was asked knows a run."""
    tasks: tuple[TaskId, ...] = ()
    hosts: tuple[str, ...] = ()


Before = Callable[[Ending], None]
"""Hears what is about to be ended; what it raises leaves everything as it is."""


def once(before: Before) -> Before:
    """Of several hosts that are asked one after the other, the first that can tell is heard."""
    heard: list[Ending] = []

    def hear(found: Ending) -> None:
        if not heard:
            before(found)
            heard.append(found)

    return hear


def looking(tasks: Collection[TaskId] | None, before: Before | None) -> First | None:
    """Has the coordinator say which run it is about, and keeps to that one. None for `tasks` are all of the run's."""
    if before is None:
        return None

    def look(record: RunRecord, session: Session) -> RunRecord:
        host = session.host.name
        answer = request_of_status(record).put(record, session)
        if answer["coordination"] is None or answer["inventory"] is None:
            raise CoordinatorAway(host, why_alone(record.cluster, host, answer))
        found = told_by_coordinator(record.as_known(answer["inventory"]), answer)
        absent = found.coordination.absent_hosts if found.coordination is not None else ()
        there = {task: one for task, one in found.tasks.items() if found.record.roster[task] not in absent}
        live = [task for task, status in there.items() if not status.state.final]
        before(ending(found.record, [task for task in live if tasks is None or task in tasks]))
        return dataclasses.replace(record, run=found.record.run)

    return look


def ending(record: RunRecord, tasks: Collection[TaskId]) -> Ending:
    there = tuple(task for task in tasks if task in record.roster)
    return Ending(record.run, there, tuple(dict.fromkeys(record.roster[task] for task in there)))
