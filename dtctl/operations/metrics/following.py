"""The same as they come, until the run has ended; each point once, whichever host tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtctl.agent.records.metrics import FolderTold, MetricsResult, Points
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.client.conversation import about, final, knows_no_run, request, said
from dtctl.operations.client.plausible import check_run
from dtctl.operations.client.streams import Away, Back, Streams
from dtctl.operations.history.record import RunRecord
from dtctl.operations.metrics.reading import Key, Series, key_of, series_of
from dtctl.transport.seam import Session, Transport

TICK_S = 0.25


def follow_metrics(
    record: RunRecord, transport: Transport, tags: Sequence[str], *, points: int
) -> Iterator[Series | Away | Back | None]:
    """What is there, at most so many points of each series, and then new points as they come, until the run has ended;
    None whenever nothing came for a moment.

    Raises DtctlError where no host can be followed.
    """
    hosts, unknown = record.ways_to(record.hosts)
    following, failed = {host.name for host in hosts}, dict[str, DtctlError](unknown)
    told_once = _ToldOnce()
    with Streams(transport) as streams:
        for host in hosts:
            streams.begin(host, _PointStream(record, host, tags, points, streams).converse)
        for told in streams.all(TICK_S):
            if isinstance(told, _Told):
                yield from told_once.new_of(told)
            elif isinstance(told, _Through):
                following.discard(told.host)
            elif isinstance(told, Away):
                told_once.release(told.host)
                if told.final:
                    following.discard(told.host)
                    failed[told.host] = told.error
                if not told.final or not knows_no_run(told.error):
                    yield told
            elif told is None or isinstance(told, Back):
                yield told
            if not following:
                break
    if failed and len(failed) == len(record.hosts):
        raise next(iter(failed.values()))


@dataclass(frozen=True)
class _Told:
    """`whole`: the first of a conversation, with what may have been told before."""

    host: str
    folders: Sequence[FolderTold]
    whole: bool


@dataclass(frozen=True)
class _Through:
    host: str


class _PointStream:
    def __init__(self, record: RunRecord, host: Host, tags: Sequence[str], points: int, streams: Streams) -> None:
        self._record = record
        self._host = host
        self._fields = {"tags": list(tags) or None, "points": points, "follow": True}
        self._streams = streams

    def converse(self, session: Session) -> bool:
        record, name = self._record, self._host.name
        session.send({**request(record, self._host, "metrics"), **self._fields})
        whole = True
        for message in said(session, "points", most_bytes=None):
            if message.type == "points":
                told = message.of(Points)
                with about(name, "sent invalid `points`"):
                    check_run(record.cluster, record.run, told["run"])
                self._streams.tell(_Told(name, told["folders"], whole), message.size)
                whole = False
        final(session, "metrics", message, MetricsResult)
        self._streams.tell(_Through(name))
        return False


class _ToldOnce:
    """Of a shared directory the host that tells it first goes on; of what is told again only what is new counts."""

    def __init__(self) -> None:
        self._owner: dict[Key, str] = {}
        self._latest: dict[tuple[Key, str], float] = {}

    def release(self, host: str) -> None:
        self._owner = {key: owner for key, owner in self._owner.items() if owner != host}

    def new_of(self, told: _Told) -> Iterator[Series]:
        for folder in told.folders:
            key = key_of(folder)
            known = key in self._owner
            if self._owner.setdefault(key, told.host) != told.host:
                continue
            for series in series_of(told.host, folder, 0.0):
                since = self._latest.get((key, series.tag))
                again = since is not None and (told.whole or not known)
                points = tuple(one for one in series.points if not again or one.time > (since or 0.0))
                if points:
                    self._latest[key, series.tag] = max(point.time for point in points)
                    yield Series(series.tag, series.name, series.host, series.directory, points, series.count)
