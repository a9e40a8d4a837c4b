"""Follow a run to its end, and logs as they are written. The run does not need anyone to follow it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Generator, Iterator

from dtctl.agent.records.answers import Log, States
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, TaskId, TaskState
from dtctl.operations.client import about, frames_of, request
from dtctl.operations.client.plausible import check_states, check_tasks
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams, Through
from dtctl.operations.logs import LogLines, LogRequest, hosts_of
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import status
from dtctl.operations.watch import TICK_S, Over, Watching
from dtctl.transport.seam import Message, Session, Transport


@dataclass(frozen=True)
class Reading:
    """The logs of a host are being read."""

    host: str


class LogStream:
    """Reports Reading, LogLines and Through. Begun again after a break, it loses and doubles no line."""

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
"""How long to wait for a run that replaces another one: its hosts first stop the old one."""

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Onward:
    """The run to follow next; `record` None: the run for which the old one was stopped has not begun."""

    record: RunRecord | None


def onward(
    ended: RunStatus,
    record: RunRecord,
    transport: Transport,
    *,
    wait: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Onward | None:
    """The cluster's current run; waits for one that replaces the stopped run. None: there is none.

    `record`: how the cluster's hosts are reached.
    """
    deadline = now() + PATIENCE_S
    while True:
        found = _current(record, transport)
        if found is not None and found.run and found.run != ended.record.run and found.created > ended.record.created:
            return Onward(found)
        if not ended.verdict.replaced:
            return None
        if now() > deadline:
            return Onward(None)
        wait(_LOOK_EVERY_S)


def _current(record: RunRecord, transport: Transport) -> RunRecord | None:
    """The current run; None while no host has one: it may be about to start."""
    try:
        return status(dataclasses.replace(record, run=None), transport).record
    except DtctlError:
        return None


@dataclass(frozen=True)
class Ended:
    """The run is over; the last of all events."""

    status: RunStatus


Event = LogLines | Reading | Through | Disconnected | Reconnected | RunStatus | Ended


def follow_for(
    record: RunRecord, transport: Transport, wanted: LogRequest, timeout_s: float | None
) -> Generator[Event | None, None, None]:
    """Follows a run for a limited time, like `follow`. After `timeout_s` it raises TimeoutError, or ends though some
    tasks of a run that is decided are still being ended."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    decided = False
    for event in follow(record, transport, wanted):
        yield event
        if isinstance(event, RunStatus):
            decided = event.verdict.outcome.decided
        if deadline is not None and time.monotonic() > deadline and not isinstance(event, Ended):
            if not decided:
                raise TimeoutError(f"run {record.run or record.cluster} has not ended within {timeout_s:g} s")
            yield Ended(status(record, transport))
            return


def follow(
    record: RunRecord, transport: Transport, wanted: LogRequest, *, look_again_s: float | None = None
) -> Generator[Event | None, None, None]:
    """Log lines and the coordinator's view as they come; None now and then; `Ended` last.

    `look_again_s`: how often the coordinator is asked for its view, also where it reports no change.

    One connection follows everything if `wanted` has no tasks. Raises DtctlError when there is no run to follow.
    """
    watching = Watching(record, transport, look_again_s)
    logs = _Logs(wanted)
    last: RunStatus | None = None
    ended = False
    while True:
        with Streams(transport) as streams:
            watching.begin(streams)
            logs.begin(watching.record, streams)
            for message in streams.all(TICK_S):
                yield from logs.observe(message)
                for report in watching.observe(message):
                    if isinstance(report, Over):
                        ended = True
                        continue
                    if isinstance(report, RunStatus):  # a coordinator itself reports the end
                        last, ended = report, report.coordination is None and report.is_over
                    yield report
                if watching.moved or (ended and not logs.unread):
                    break
        if ended and last is not None:
            yield Ended(last)
            return


class _Logs:
    """The logs that are followed together with the run."""

    def __init__(self, wanted: LogRequest) -> None:
        self.unread: set[str] = set()
        """Hosts that can be reached and whose logs have not been read to the end."""
        self._wanted = wanted
        self._hosts: frozenset[str] = frozenset()

    def begin(self, record: RunRecord, streams: Streams) -> None:
        hosts, unknown = record.routes_to(hosts_of(record, self._wanted.tasks))
        self.unread = {host.name for host in hosts}
        self._hosts = frozenset(self.unread | unknown.keys()) - {record.coordinator}
        for host in hosts:
            streams.begin(host, LogStream(record, host, self._wanted, streams).converse)
        for name, error in unknown.items():
            streams.put(Disconnected(name, error, final=True))

    def observe(self, message: object) -> Iterator[Event]:
        """Whether the coordinator's host is away or back is reported with the run."""
        if isinstance(message, Through | Disconnected):
            self.unread.discard(message.host)
        elif isinstance(message, Reading):
            self.unread.add(message.host)
        if isinstance(message, LogLines | Reading | Through) or (
            isinstance(message, Disconnected | Reconnected) and message.host in self._hosts
        ):
            yield message


def follow_log(
    record: RunRecord, transport: Transport, task: TaskId, lines: int
) -> Generator[LogLines | Disconnected | Reconnected | None, None, None]:
    """Endless: an attempt that has ended may be followed by another. Raises TransportError for an unknown host."""
    host = record.route_to(record.roster[task])
    with Streams(transport) as streams:
        streams.begin(host, LogStream(record, host, LogRequest((task,), lines=lines), streams).converse)
        for message in streams.all(TICK_S):
            if message is None or isinstance(message, LogLines | Disconnected | Reconnected):
                yield message
