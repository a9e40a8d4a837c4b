"""Follow a run to its end. The hosts bring it there; whoever follows only looks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dtctl.agent.records.answers import RunResult, States, StatusResult
from dtctl.agent.records.whole_run import RunView
from dtctl.errors import DtctlError
from dtctl.operations.asking.conversation import about, final, request, said
from dtctl.operations.asking.coordination import Coordination
from dtctl.operations.asking.coordinator import away, why_alone
from dtctl.operations.asking.plausible import check_run, check_view
from dtctl.operations.asking.streams import Away, Back, Streams
from dtctl.operations.logs import LogLines, LogRequest, hosts_of
from dtctl.operations.logs.stream import LogStream, Reading, Through
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.status import RunStatus, request_of_status, status_elsewhere, told_by_coordinator
from dtctl.transport.seam import Session, Transport

TICK_S = 0.25


@dataclass(frozen=True)
class Seen:
    """The run as its coordinator sees it now."""

    coordination: Coordination


@dataclass(frozen=True)
class Ended:
    """The run is over; the last of all events."""

    status: RunStatus


Event = LogLines | Reading | Through | Away | Back | Seen | Ended


def follow(record: RunRecord, transport: Transport, wanted: LogRequest) -> Iterator[Event | None]:
    """Log lines and the coordinator's view as they come; None now and then; `Ended` last.

    Without tasks in `wanted` one connection follows it all. Raises DtctlError when there is no run to follow.
    """
    following = _Following(record, transport, wanted)
    while True:
        with Streams(transport) as streams:
            following.begin(streams)
            for told in streams.all(TICK_S):
                following.observe(told)
                if following.restarted or (following.ended is not None and following.all_read):
                    break
                if not isinstance(told, Ended):
                    yield told  # type: ignore[misc]
        if following.ended is not None:
            yield following.ended
            return


class _Following:
    """What has been seen so far, and where it is looked for."""

    def __init__(self, record: RunRecord, transport: Transport, wanted: LogRequest) -> None:
        self.ended: Ended | None = None
        self.restarted = False
        """The run was found elsewhere than where the cluster file says; everything is to be begun again."""
        self._record = record
        self._transport = transport
        self._wanted = wanted
        self._seen = False
        self._unread: set[str] = set()
        """Hosts whose logs have not been read to the end."""

    def begin(self, streams: Streams) -> None:
        record, self.restarted = self._record, False
        streams.begin(record.way_to(record.coordinator), _Watch(record, streams).converse)
        hosts, unknown = record.ways_to(hosts_of(record, self._wanted.tasks))
        self._unread = {host.name for host in hosts}
        for host in hosts:
            streams.begin(host, LogStream(record, host, self._wanted, streams).converse)
        for name, error in unknown.items():
            streams.tell(Away(name, error, final=True))

    @property
    def all_read(self) -> bool:
        """All that was printed has been seen, on the hosts that can be reached."""
        return not self._unread

    def observe(self, told: object) -> None:
        if isinstance(told, Seen):
            self._seen = True
        elif isinstance(told, Ended):
            self.ended = told
        elif isinstance(told, Through | Away):
            self._unread.discard(told.host)
            if isinstance(told, Away) and told.host == self._record.coordinator and not self._seen:
                self._look_elsewhere(away(told.host, told.error))
        elif isinstance(told, Reading):
            self._unread.add(told.host)

    def _look_elsewhere(self, error: DtctlError) -> None:
        self._seen = True
        found = status_elsewhere(error, self._record, self._transport)
        if found.coordination is not None:
            self._record, self.restarted = found.record, True
        elif found.verdict.outcome.decided and not found.going_on_after_the_end:
            self.ended = Ended(found)


class _Watch:
    """The conversation with the coordinator's host."""

    def __init__(self, record: RunRecord, streams: Streams) -> None:
        self._record = record
        self._streams = streams

    def converse(self, session: Session) -> bool:
        """Until the run is over; then the coordinator's last word, with the checkpoints.

        Its first word tells of the run's tasks: the cluster file may have changed since the run was started.
        """
        known, _ = self._ask(self._record, session)
        session.send(request(known, session.host, "watch"))
        for message in said(session, "states", most_bytes=None):
            if message.type == "states" and (view := message.of(States)["coordination"]) is not None:
                self._streams.tell(Seen(self._seen(known, session, view)), message.size)
        final(session, "watch", message, RunResult, lambda answer: check_run(known.cluster, known.run, answer["run"]))
        known, answer = self._ask(known, session)
        self._streams.tell(Ended(told_by_coordinator(known, answer)))
        return False

    def _ask(self, record: RunRecord, session: Session) -> tuple[RunRecord, StatusResult]:
        answer = request_of_status(record).put(record, session)
        if answer["coordination"] is None or answer["inventory"] is None:
            raise why_alone(record.cluster, session.host.name, answer)
        return record.as_known(answer["inventory"]), answer

    def _seen(self, known: RunRecord, session: Session, view: RunView) -> Coordination:
        assert known.run is not None
        with about(session.host.name, "sent invalid `states`"):
            check_view(view, known.run, known.names_by_host())
            return Coordination.of(view, known.roster)
