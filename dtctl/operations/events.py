"""The story of a run: who did what, what happened, what was decided and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dtctl.agent.records.answers import EventsResult
from dtctl.agent.records.reasons import Fact, why_of
from dtctl.agent.records.whole_run import StoryLine
from dtctl.errors import DtctlError, TransportError
from dtctl.operations.client.conversation import ANSWER_BYTES, about, final, request, said
from dtctl.operations.client.coordinator import CoordinatorAway
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.client.streams import Away, Back, Streams
from dtctl.operations.status import Own, ask_run
from dtctl.transport.fanout import fan_out
from dtctl.transport.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.operations.history.record import RunRecord
    from dtctl.transport.seam import Session, Transport

TICK_S = 0.25


@dataclass(frozen=True)
class Happening:
    """One line of the story; its time is in epoch seconds. `kind`: task, contact, decision, condition or request."""

    number: int
    time: float
    kind: str
    host: str | None
    task: str | None
    attempt: int | None
    before: str | None
    after: str | None
    why: tuple[Fact, ...]
    by: str

    @classmethod
    def of(cls, line: StoryLine) -> Happening:
        return cls(
            number=line["n"],
            time=line["time"],
            kind=line["kind"],
            host=line["host"],
            task=line["task"],
            attempt=line["attempt"],
            before=line["from"],
            after=line["to"],
            why=tuple(why_of(line)),
            by=line["by"],
        )


@dataclass(frozen=True)
class Story:
    """`away` and `errors`: why it was put together from what each host knows of itself, and who gave no answer."""

    happenings: tuple[Happening, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)
    away: CoordinatorAway | None = None


def read_events(record: RunRecord, transport: Transport, *, last: int | None, begin: int | None = None) -> Story:
    """The last so many lines (None: all): the coordinator's own, or else those of all hosts, merged by time.

    `begin`: of the coordinator's own those from this number on.
    """

    def request(asked: RunRecord, own: Own) -> list[Happening]:
        numbered = begin if asked is record else None  # another coordinator numbers its own
        return _ask(asked, transport, asked.coordinator, last, begin=numbered, whole=True)

    try:
        return Story(tuple(ask_run(record, transport, request)[1]))
    except CoordinatorAway as away:
        cause, found = away, away.found
    assert found is not None
    known = found.record
    away_too = {host: error for host, error in found.errors.items() if isinstance(error, TransportError)}
    names = [name for name in dict.fromkeys(known.roster.values()) if name not in away_too]
    outcomes = fan_out(names, lambda host: _ask(known, transport, host, last, whole=False))
    if not outcomes.results:
        raise cause.cause
    merged = sorted((one for told in outcomes.results.values() for one in told), key=lambda one: one.time)
    return Story(tuple(merged if last is None else merged[-last:]), {**away_too, **outcomes.errors}, cause)


def follow_events(
    record: RunRecord, transport: Transport, *, last: int | None, begin: int | None = None
) -> Iterator[Happening | Away | Back]:
    """The coordinator's lines as they are written, until the run has ended; no line is lost or doubled.

    From the number `begin` on, where it is given.

    Raises DtctlError when there is nothing to follow, or the coordinator's host cannot be reached from the start.
    """
    host = record.way_to(record.coordinator)
    heard = False
    with Streams(transport) as streams:
        streams.begin(host, _EventStream(record, host, _first(last) if begin is None else begin, streams).converse)
        for told in streams.all(TICK_S):
            if isinstance(told, _TheEnd):
                return
            if isinstance(told, Away) and (told.final or not heard):
                raise told.error
            heard = heard or isinstance(told, Happening)
            if isinstance(told, Happening | Away | Back):
                yield told


class _TheEnd:
    """Nothing more will happen."""


class _EventStream:
    def __init__(self, record: RunRecord, host: Host, begin: int, streams: Streams) -> None:
        self._record = record
        self._host = host
        self._from = begin
        self._streams = streams

    def converse(self, session: Session) -> bool:
        session.send({**request(self._record, self._host, "events"), "from": self._from, "follow": True, "whole": True})
        for message in said(session, "event", most_bytes=None):
            if message.type == "event":
                line = message.of(StoryLine)
                self._from = line["n"] + 1
                self._streams.tell(Happening.of(line), message.size)
        final(session, "events", message, EventsResult)
        self._streams.tell(_TheEnd())
        return False


def _ask(
    record: RunRecord, transport: Transport, name: str, last: int | None, *, begin: int | None = None, whole: bool
) -> list[Happening]:
    host = record.way_to(name)
    session = transport.open(host)
    try:
        fields = {"from": _first(last) if begin is None else begin, "follow": False, "whole": whole}
        session.send({**request(record, host, "events"), **fields})
        told: list[Happening] = []
        for message in said(session, "event", most_bytes=ANSWER_BYTES, within_s=PATIENCE_S):
            if message.type == "event":
                with about(name, "sent an invalid `event`"):
                    told.append(_line(message.of(StoryLine), name, whole=whole))
        final(
            session,
            "events",
            message,
            EventsResult,
            lambda answer: check_run(record.cluster, record.run, answer["run"]),
        )
        return told if last is None else told[-last:]
    finally:
        session.close()


def _line(line: StoryLine, host: str, *, whole: bool) -> Happening:
    """Raises Wrong when a host that does not tell the story of the whole run speaks of another host."""
    if not whole and line["host"] not in (None, host):
        raise wrong("host", host, line["host"])
    return Happening.of(line)


def _first(last: int | None) -> int:
    """Where reading begins: a negative number counts from the end."""
    return 0 if last is None else -last
