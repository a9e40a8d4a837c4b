"""What a command is about to end, found out in the conversation in which it then ends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtctl.operations.client.coordinator import CoordinatorAway, First, why_alone
from dtctl.operations.status import request_of_status, told_by_coordinator

if TYPE_CHECKING:
    from dtctl.model import TaskId
    from dtctl.operations.history.record import RunRecord
    from dtctl.transport.seam import Session


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
