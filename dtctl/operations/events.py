"""The event history of a run: who did what, what happened, what was decided and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import field
from typing import TYPE_CHECKING, cast

from dtctl.agent.records.answers import EventsResult
from dtctl.agent.records.reasons import Fact, why_of
from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.agent.run.policy import CLOCKS_AGREE_S, lost_peer
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, TransportError
from dtctl.operations.client import Request, about, final, frames_of, request
from dtctl.operations.client.plausible import wrong
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams, Through
from dtctl.operations.coordinator import Own, ask_run
from dtctl.operations.snapshot import CoordinatorUnreachable
from dtctl.transport.fanout import fan_out

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.operations.run_record import RunRecord
    from dtctl.transport.seam import Message, Session, Transport


TICK_S = 0.25


@dataclass(frozen=True)
class EventHistory:
    """`away` and `errors`: why it was merged from the hosts' own histories, and which hosts gave no answer."""

    lines: tuple[HistoryEvent, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    away: CoordinatorUnreachable | None = None


def read_events(record: RunRecord, transport: Transport, *, last: int | None, begin: int | None = None) -> EventHistory:
    """The last lines (None: all): the coordinator's, or else those of all hosts, merged by time.

    `begin`: of the coordinator's own those from this number on.
    """

    def request(asked: RunRecord, own: Own) -> list[HistoryEvent]:
        numbered = begin if asked is record else None  # another coordinator has its own numbering
        return _ask(asked, transport, asked.coordinator, last, begin=numbered, whole=True)

    try:
        return EventHistory(tuple(ask_run(record, transport, request)[1]))
    except CoordinatorUnreachable as away:
        cause, found = away, away.found
    assert found is not None
    known = found.record
    away_too = {host: error for host, error in found.errors.items() if isinstance(error, TransportError)}
    names = [name for name in dict.fromkeys(known.roster.values()) if name not in away_too]
    outcomes = fan_out(names, lambda host: _ask(known, transport, host, last, whole=False))
    if not outcomes.results:
        raise cause.cause
    merged = sorted((event for events in outcomes.results.values() for event in events), key=lambda one: one["time"])
    return EventHistory(tuple(merged if last is None else merged[-last:]), {**away_too, **outcomes.errors}, cause)


def follow_events(
    record: RunRecord, transport: Transport, *, last: int | None, begin: int | None = None
) -> Iterator[HistoryEvent | Disconnected | Reconnected]:
    """The coordinator's lines as they are written, until the run has ended; no line is lost or repeated.

    From the number `begin` on, where it is given.

    Raises DtctlError when there is nothing to follow, or the coordinator's host cannot be reached from the start.
    """
    host = record.route_to(record.coordinator)
    begin = _first(last) if begin is None else begin
    received = False

    def converse(session: Session) -> bool:
        nonlocal begin
        session.send({**request(record, host, "events"), "from": begin, "follow": True, "whole": True})
        for message in frames_of(session, "event", most_bytes=None):
            if message.type == "event":
                line = message.of(HistoryEvent)
                begin = line["n"] + 1
                streams.put(line, message.size)
        final(record, session, "events", message, EventsResult)
        streams.put(Through(host.name))
        return False

    with Streams(transport) as streams:
        streams.begin(host, converse)
        for item in streams.all(TICK_S):
            if isinstance(item, Through):
                return
            if isinstance(item, Disconnected) and (item.final or not received):
                raise item.error
            if isinstance(item, Disconnected | Reconnected):
                yield item
            elif item is not None:
                received = True
                yield cast("HistoryEvent", item)


def _ask(
    record: RunRecord, transport: Transport, name: str, last: int | None, *, begin: int | None = None, whole: bool
) -> list[HistoryEvent]:
    host = record.route_to(name)
    events: list[HistoryEvent] = []

    def on_event(host: Host, message: Message) -> None:
        with about(name, "sent an invalid `event`"):
            events.append(_line(message.of(HistoryEvent), name, whole=whole))

    fields = {"from": _first(last) if begin is None else begin, "follow": False, "whole": whole}
    wanted = Request("events", EventsResult, lambda _: fields, on_frame={"event": on_event})
    with closing(transport.open(host)) as session:
        wanted.put(record, session)
    return events if last is None else events[-last:]


def _line(line: HistoryEvent, host: str, *, whole: bool) -> HistoryEvent:
    """Raises InvalidValue if a host that does not report for the whole run reports about another host."""
    if not whole and line["host"] not in (None, host):
        raise wrong("host", host, line["host"])
    return line


def _first(last: int | None) -> int:
    """The index of the first line to read; a negative number counts from the end."""
    return 0 if last is None else -last


_ENDS = frozenset({"backoff", "succeeded", "failed", "stopped", "pending"})


_MOST_PASSED = 200
"""How many entries back a line that arrives late is inserted."""


@dataclass(frozen=True)
class Attempted:
    """An attempt: how long it ran and what it ended with. Its time, in epoch seconds, is that of its end.

    `state`: the one that followed, or the one that it is in: then the time is that of its beginning. `ran_s` None:
    it was not seen running. `again`: another attempt has followed.
    """

    task: str
    host: str | None
    attempt: int
    time: float
    ran_s: float | None
    state: str
    why: Sequence[Fact]
    again: bool = False
    cause: str = ""
    """The cause of its end, by its log."""

    @property
    def ended(self) -> bool:
        return self.state in _ENDS

    @property
    def is_failure(self) -> bool:
        """Whether the attempt ended by itself with a failure."""
        return self.state in ("backoff", "failed")

    @property
    def lost_peer(self) -> bool:
        return self.is_failure and lost_peer(self.cause)


class Folding:
    """Folds the event history, line by line as it comes."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], float] = {}
        self._open: dict[tuple[str, int], HistoryEvent] = {}
        """The last transition of each attempt that has not ended."""
        self._stalled: dict[tuple[str, int], Sequence[Fact]] = {}

    def take(self, one: HistoryEvent) -> Iterator[HistoryEvent | Attempted]:
        """The entries to show now: an attempt at its end, and other lines as they are."""
        if one["kind"] != "task" or one["task"] is None or one["from"] == one["to"]:
            if one["kind"] != "task" or not one["asked"]:  # which is shown with the task's end
                yield one
            return
        key = (one["task"], one["attempt"] or 0)
        if one["to"] in _ENDS:
            if key in self._open:
                yield self._ended(key, one)
            elif one["to"] not in ("pending", "backoff"):
                yield one  # it ends without having begun
            return
        yield from self._before(key, one)
        self._open[key] = one
        if one["to"] == "running":
            self._running[key] = one["time"]
        elif one["to"] == "stalled":
            self._stalled[key] = why_of(one)

    def _before(self, key: tuple[str, int], one: HistoryEvent) -> Iterator[Attempted]:
        """Earlier attempts of the task whose end was not seen."""
        for earlier in [other for other in self._open if other[0] == key[0] and other[1] < key[1]]:
            yield self._ended(earlier, one, "pending")

    def rest(self) -> list[Attempted]:
        """Attempts that have not ended."""
        return [self._unfinished(key, last) for key, last in self._open.items()]

    def _unfinished(self, key: tuple[str, int], last: HistoryEvent) -> Attempted:
        began = self._running.get(key, last["time"])
        return Attempted(key[0], last["host"], key[1], began, None, str(last["to"]), why_of(last))

    def _ended(self, key: tuple[str, int], end: HistoryEvent, state: str | None = None) -> Attempted:
        last = self._open.pop(key)
        began = self._running.pop(key, None)
        state = state or str(end["to"])
        why = self._stalled.pop(key, ()) if state == "pending" else ()
        ran_s = None if began is None else max(0.0, end["time"] - began)
        cause = end["end"]["cause"] if end["end"] is not None else ""
        host, why = last["host"] or end["host"], why or why_of(end)
        return Attempted(key[0], host, key[1], end["time"], ran_s, state, why, cause=cause)


def folded(events: Iterable[HistoryEvent]) -> list[HistoryEvent | Attempted]:
    """Entries in the order of the event history, causes before effects; running attempts at their beginning."""
    folding = Folding()
    entries: list[HistoryEvent | Attempted] = []
    after: dict[tuple[str, int], HistoryEvent | Attempted] = {}
    """Attempt -> the first entry that the history has after its beginning."""
    begun: list[tuple[str, int]] = []
    for event in events:
        for entry in folding.take(event):
            entries.insert(_position(entries, entry), entry)
            after.update(dict.fromkeys(begun, entry))
            begun.clear()
        if event["kind"] == "task" and event["task"] is not None and event["to"] == "running":
            begun.append((event["task"], event["attempt"] or 0))
    for running in folding.rest():
        place = next((at for at, entry in enumerate(entries) if _time(entry) > running.time), len(entries))
        follower = after.get((running.task, running.attempt))
        same = [at for at, entry in enumerate(entries[:place]) if entry is follower]
        if same and _time(entries[same[0]]) >= running.time - CLOCKS_AGREE_S:
            place = same[0]
        entries.insert(place, running)
    newest: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, Attempted):
            newest[entry.task] = max(newest.get(entry.task, 0), entry.attempt)
    return in_order(_with_sequel(entry, newest) for entry in entries)


class Ordering:
    """Entries one by one, whose times go back nowhere by less than clocks differ: the later line was written after the
    other, so the clock of its host is slow, and it gets the time of the other.
    """

    def __init__(self) -> None:
        self._last = 0.0

    def take(self, entry: HistoryEvent | Attempted) -> HistoryEvent | Attempted:
        if self._last - CLOCKS_AGREE_S <= _time(entry) < self._last:
            return _at(entry, self._last)
        self._last = _time(entry)
        return entry


def in_order(entries: Iterable[HistoryEvent | Attempted]) -> list[HistoryEvent | Attempted]:
    """The entries as Ordering has them."""
    return list(map(Ordering().take, entries))


def _at(entry: HistoryEvent | Attempted, time: float) -> HistoryEvent | Attempted:
    if isinstance(entry, Attempted):
        return dataclasses.replace(entry, time=time)
    moved: HistoryEvent = {**entry, "time": time}
    return moved


def _time(entry: HistoryEvent | Attempted) -> float:
    return entry.time if isinstance(entry, Attempted) else entry["time"]


def _position(entries: Sequence[HistoryEvent | Attempted], entry: HistoryEvent | Attempted) -> int:
    """The position by time: the coordinator learns of an end with the host's next message, or when the host is back.

    Entries closer than the differences of clocks stay in the coordinator's order, but a failure comes before those of
    tasks that lost their connection by it.
    """
    place, least = len(entries), max(0, len(entries) - _MOST_PASSED)
    while place > least and _time(entries[place - 1]) > _time(entry) + CLOCKS_AGREE_S:
        place -= 1
    if isinstance(entry, Attempted) and entry.is_failure and not entry.lost_peer:
        return next((n for n in range(least, place) if _may_follow(entries[n], entry)), place)
    return place


def _may_follow(earlier: HistoryEvent | Attempted, cause: Attempted) -> bool:
    return isinstance(earlier, Attempted) and earlier.lost_peer and earlier.time >= cause.time - CLOCKS_AGREE_S


def _with_sequel(entry: HistoryEvent | Attempted, newest: Mapping[str, int]) -> HistoryEvent | Attempted:
    if isinstance(entry, Attempted) and entry.attempt < newest[entry.task]:
        return dataclasses.replace(entry, again=True)
    return entry
