"""Follow a run to its end. The hosts bring it there; whoever follows only looks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from dtctl.agent.records.answers import States
from dtctl.agent.records.whole_run import RunView
from dtctl.errors import DtctlError
from dtctl.operations.client.conversation import about
from dtctl.operations.client.coordinator import coordinator_away
from dtctl.operations.client.plausible import check_view
from dtctl.operations.client.snapshot import Coordination
from dtctl.operations.client.streams import Away, Back, Streams
from dtctl.operations.history.record import RunRecord
from dtctl.operations.logs import LogLines, LogRequest, hosts_of
from dtctl.operations.logs.following import LogStream, Reading, Through
from dtctl.operations.status import RunStatus, ask_whole_run, status_elsewhere, told_by_coordinator, watched
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


@dataclass(frozen=True)
class _Elsewhere:
    """The run as the other hosts show it while the coordinator's is away."""

    status: RunStatus


LOOK_AGAIN_S = 5.0
"""Between two looks at the other hosts."""


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
                if not isinstance(told, Ended | _Elsewhere):
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
        self._streams: Streams | None = None
        self._back = threading.Event()
        """Set while the coordinator is not away."""
        self._unread: set[str] = set()
        """Hosts whose logs have not been read to the end."""

    def begin(self, streams: Streams) -> None:
        record, self.restarted, self._streams = self._record, False, streams
        self._back.set()
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
            self._back.set()
        elif isinstance(told, _Elsewhere):
            self._judge(told.status)
        elif isinstance(told, Ended):
            self.ended = told
        elif isinstance(told, Through | Away):
            self._unread.discard(told.host)
            if isinstance(told, Away) and told.host == self._record.coordinator:
                self._lose_coordinator(told)
        elif isinstance(told, Reading):
            self._unread.add(told.host)

    def _lose_coordinator(self, told: Away) -> None:
        """From now on the other hosts are asked, too, until it is back. The first time they must know the run."""
        if not self._seen:
            self._seen = True
            self._judge(status_elsewhere(coordinator_away(told.host, told.error), self._record, self._transport))
        if not (self.restarted or self.ended):
            self._back.clear()
            threading.Thread(target=self._look_elsewhere, args=(told, self._streams), daemon=True).start()

    def _look_elsewhere(self, told: Away, streams: Streams) -> None:
        while not (self._back.wait(LOOK_AGAIN_S) or streams.ended):
            with suppress(DtctlError):  # the next look may tell more
                away = coordinator_away(told.host, told.error)
                streams.tell(_Elsewhere(status_elsewhere(away, self._record, self._transport)))

    def _judge(self, found: RunStatus) -> None:
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
        known, _ = ask_whole_run(self._record, session)
        for message in watched(known, session):
            if (view := message.of(States)["coordination"]) is not None:
                self._streams.tell(Seen(self._seen(known, session, view)), message.size)
        self._streams.tell(Ended(told_by_coordinator(*ask_whole_run(known, session))))
        return False

    def _seen(self, known: RunRecord, session: Session, view: RunView) -> Coordination:
        assert known.run is not None
        with about(session.host.name, "sent invalid `states`"):
            check_view(view, known.run, known.names_by_host())
            return Coordination.of(view, known.roster)
