"""Follow a run to its end, or a task's log. The run does not need anyone to follow it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

from dtctl.dataclass import dataclass
from dtctl.model import TaskId
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams, Through
from dtctl.operations.logs import LogLines, LogRequest, hosts_of
from dtctl.operations.logs.following import LogStream, Reading
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import RunStatus
from dtctl.operations.status import status
from dtctl.operations.watch import TICK_S, Over, Watching
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Ended:
    """The run is over; the last of all events."""

    status: RunStatus


Event = LogLines | Reading | Through | Disconnected | Reconnected | RunStatus | Ended


def follow_for(
    record: RunRecord, transport: Transport, wanted: LogRequest, timeout_s: float | None
) -> Generator[Event | None, None, None]:
    """As `follow`. After `timeout_s` it raises TimeoutError, or ends though some tasks of a run that is decided are
    still being ended."""
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


def follow(record: RunRecord, transport: Transport, wanted: LogRequest) -> Generator[Event | None, None, None]:
    """Log lines and the coordinator's view as they come; None now and then; `Ended` last.

    Without tasks in `wanted` one connection follows it all. Raises DtctlError when there is no run to follow.
    """
    watching = Watching(record, transport, look_again_s=None)
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
                    if isinstance(report, RunStatus):  # a coordinator says itself when all is over
                        last, ended = report, report.coordination is None and report.is_over
                    yield report
                if watching.moved or (ended and not logs.unread):
                    break
        if ended and last is not None:
            yield Ended(last)
            return


class _Logs:
    """The logs that are followed beside the run."""

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
