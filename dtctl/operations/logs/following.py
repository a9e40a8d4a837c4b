"""Logs as they are written, from one host."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from dtctl.agent.records.answers import Log, States
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskState
from dtctl.operations.client.conversation import about, frames_of, request
from dtctl.operations.client.plausible import check_states, check_tasks
from dtctl.operations.client.streams import Streams, Through
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import status
from dtctl.transport.seam import Message, Session, Transport


@dataclass(frozen=True)
class Reading:
    """The logs of a host are being read."""

    host: str


class LogStream:
    """Tells Reading, LogLines and Through. Begun again after a break, it loses and doubles no line."""

    def __init__(self, record: RunRecord, host: Host, wanted: LogRequest, streams: Streams) -> None:
        self._record = record
        self._host = host
        self._fields = wanted.fields(record, host)
        self._streams = streams
        self._resume: dict[str, list[int]] = {}

    def converse(self, session: Session) -> bool:
        """Logs until the wanted tasks have ended, then states until one of them runs again."""
        self._streams.put(Reading(self._host.name))
        onwards = {"follow": True, "resume": self._resume}
        session.send({**request(self._record, self._host, "logs"), **self._fields, **onwards})
        for message in frames_of(session, "log", most_bytes=None):
            if message.type == "log":
                self._pass_on(message)
        self._streams.put(Through(self._host.name))
        session.send(request(self._record, self._host, "watch"))
        for message in frames_of(session, "states", most_bytes=None):
            if message.type == "states" and not self._all_final(message.of(States)):
                return True
        return False

    def _pass_on(self, message: Message) -> None:
        log = message.of(Log)
        with about(self._host.name, "sent an invalid `log`"):
            check_tasks("task", [log["task"]], self._fields["tasks"])
        self._resume[log["task"]] = [log["attempt"], log["end"]]
        if message.payload:
            self._streams.put(LogLines(log, message.payload), message.size)

    def _all_final(self, states: States) -> bool:
        """Tasks that are not reported have no more to print."""
        with about(self._host.name, "sent invalid `states`"):
            tasks = check_states(states, self._host.name, self._record.names_on(self._host.name))["tasks"]
        return all(TaskState(tasks[task]["state"]).final for task in self._fields["tasks"] if task in tasks)


PATIENCE_S = 120.0
"""For a run that is about to begin where another was stopped for it: its hosts end the old one first."""

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Onward:
    """`record` None: the run for which the old one was stopped has not begun."""

    record: RunRecord | None


def made_room(ended: RunStatus) -> bool:
    """It was stopped for another run."""
    return any(fact["kind"] in ("makes_room", "replaced") for fact in ended.verdict.why)


def onward(
    ended: RunStatus,
    record: RunRecord,
    transport: Transport,
    *,
    wait: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Onward | None:
    """The run that the cluster has now; one for which the old one was stopped is waited for. None: there is none.

    `record`: how the cluster's hosts are reached.
    """
    deadline = now() + PATIENCE_S
    while True:
        found = _current(record, transport)
        if found is not None and found.run and found.run != ended.record.run and found.created > ended.record.created:
            return Onward(found)
        if not made_room(ended):
            return None
        if now() > deadline:
            return Onward(None)
        wait(_LOOK_EVERY_S)


def _current(record: RunRecord, transport: Transport) -> RunRecord | None:
    """None while no host has one: it may be about to start."""
    try:
        return status(dataclasses.replace(record, run=None), transport).record
    except DtctlError:
        return None
