"""A run as it is now, again whenever it has changed, over conversations that are kept open.

The coordinator's host tells of all tasks. While it is away every other host is asked for itself.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass

from dtctl.agent.records.answers import States, StatusResult
from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.client.conversation import about
from dtctl.operations.client.coordinator import CoordinatorAway, coordinator_away
from dtctl.operations.client.plausible import check_state, check_view, wrong
from dtctl.operations.client.streams import Away, Back, Streams
from dtctl.operations.history.record import RunRecord
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.logs.following import LogStream
from dtctl.operations.metrics import Point, Series, follow_metrics
from dtctl.operations.status import (
    RunStatus,
    ask_whole_run,
    request_of_status,
    status_elsewhere,
    status_of_hosts,
    told_by_coordinator,
    watched,
)
from dtctl.transport.seam import Session, Transport

TICK_S = 0.1

TOGETHER_S = 0.5
"""How often what hosts tell of themselves is put together, at the most."""

LOOK_AGAIN_S = 5.0
"""How often a host is asked what it does not tell by itself: its checkpoints, and whether all is over."""


@dataclass(frozen=True)
class Over:
    """Nothing more will happen to the run."""


Told = RunStatus | Away | Back | Over


def watch_run(record: RunRecord, transport: Transport) -> Generator[Told | None, None, None]:
    """What is told of the run, as it comes, endlessly; None whenever nothing came for a moment.

    Raises DtctlError when no host knows a run, before anything else is told.
    """
    watching = _Watching(record, transport)
    while True:
        with Streams(transport) as streams:
            watching.begin(streams)
            for told in streams.all(TICK_S):
                yield from watching.observe(told)
                if watching.moved:
                    break


@dataclass(frozen=True)
class _Told:
    """By a host for itself."""

    host: str
    answer: StatusResult


class _Watching:
    """Who is asked, and what the hosts have said for themselves while the coordinator was away."""

    def __init__(self, record: RunRecord, transport: Transport) -> None:
        self.moved = False
        """The run was found elsewhere than where the cluster file says: everything is begun again."""
        self._record = record
        self._transport = transport
        self._streams: Streams | None = None
        self._heard = False
        """Something was told of the run."""
        self._alone: _Alone | None = None
        """While the coordinator is away."""

    def begin(self, streams: Streams) -> None:
        self.moved, self._streams, self._alone = False, streams, None
        record = self._record
        streams.begin(record.way_to(record.coordinator), _Coordinator(record, streams).converse)

    def observe(self, told: object) -> Iterator[Told | None]:
        if isinstance(told, RunStatus):
            self._heard = True
            self._record = told.record if self._record.run is None else self._record
            self._hear_the_coordinator()
            yield told
        elif isinstance(told, Away | Back):
            yield from self._contact(told)
        elif isinstance(told, _Told):
            if self._alone is not None:
                self._alone.hear(told)
        elif told is None or isinstance(told, Over):
            yield told
        if self._alone is not None:
            yield self._alone.news()

    def _contact(self, told: Away | Back) -> Iterator[Told | None]:
        if told.host != self._record.coordinator:
            if isinstance(told, Away) and self._alone is not None:
                self._alone.miss(told)
            return
        if isinstance(told, Back):
            yield told
            return
        if not self._heard:
            yield from self._look_elsewhere(coordinator_away(told.host, told.error))
        if not self.moved:
            yield told
            self._ask_each(told)

    def _look_elsewhere(self, error: CoordinatorAway) -> Iterator[RunStatus]:
        found = status_elsewhere(error, self._record, self._transport)
        if found.coordination is not None:
            self._record, self.moved = found.record, True
        self._heard = True
        yield found

    def _ask_each(self, told: Away) -> None:
        """Every other host tells of its own tasks until the coordinator is back."""
        assert self._streams is not None
        self._alone = _Alone(self._record, self._transport, self._streams, told)
        self._alone.begin()

    def _hear_the_coordinator(self) -> None:
        if self._alone is not None:
            self._alone.over = True
            self._alone = None


class _Coordinator:
    """The conversation with the coordinator's host: `status`, then `watch` for a while, and the same again."""

    def __init__(self, record: RunRecord, streams: Streams) -> None:
        self._record = record
        self._streams = streams

    def converse(self, session: Session) -> bool:
        while True:
            asked = time.monotonic()
            known, answer = ask_whole_run(self._record, session)
            self._streams.tell(told_by_coordinator(known, answer))
            began = time.monotonic()
            self._watch(known, session, answer, asked)
            if time.monotonic() - began < LOOK_AGAIN_S / 2:  # it ends early only where nothing more will happen
                answer = request_of_status(known).put(known, session)
                if answer["coordination"] is not None:
                    self._streams.tell(told_by_coordinator(known, answer))
                self._streams.tell(Over())
                return False

    def _watch(self, known: RunRecord, session: Session, answer: StatusResult, asked: float) -> None:
        """Tells each change, with the checkpoints of the last answer."""
        assert known.run is not None
        for message in watched(known, session, for_s=LOOK_AGAIN_S):
            if (view := message.of(States)["coordination"]) is not None:
                with about(session.host.name, "sent invalid `states`"):
                    check_view(view, known.run, known.names_by_host())
                now = max(view["time"], answer["time"] + time.monotonic() - asked)  # a view may be some seconds old
                latest: StatusResult = {**answer, "coordination": view, "time": now}
                self._streams.tell(told_by_coordinator(known, latest), message.size)


class _Alone:
    """What hosts tell of themselves while the coordinator's is away."""

    def __init__(self, record: RunRecord, transport: Transport, streams: Streams, coordinator: Away) -> None:
        self.over = False
        """The coordinator is heard again: the conversations end."""
        self._record = record
        self._transport = transport
        self._streams = streams
        self._answers: dict[str, StatusResult] = {}
        self._errors: dict[str, DtctlError] = {coordinator.host: coordinator.error}
        self._away: CoordinatorAway | None = None
        with suppress(DtctlError):  # something else than that it is away
            self._away = coordinator_away(coordinator.host, coordinator.error)
        self._changed = True
        self._next = 0.0

    def begin(self) -> None:
        hosts, unknown = self._record.ways_to(name for name in self._record.hosts if name not in self._errors)
        self._errors.update(unknown)
        for host in hosts:
            self._streams.begin(host, _Host(self._record, self._streams, self).converse)

    def hear(self, told: _Told) -> None:
        self._errors.pop(told.host, None)
        self._answers[told.host] = told.answer
        self._changed = True

    def miss(self, told: Away) -> None:
        self._answers.pop(told.host, None)
        self._errors[told.host] = told.error
        self._changed = True

    def news(self) -> RunStatus | None:
        """None where there is none; not until each host has said something, or is known to be away: nobody is asked."""
        complete = set(self._record.hosts) <= self._answers.keys() | self._errors.keys()
        if not self._changed or not complete or time.monotonic() < self._next:
            return None
        self._changed, self._next = False, time.monotonic() + TOGETHER_S
        found = status_of_hosts(self._record, self._transport, self._errors, self._answers)
        if not found.time:
            return None
        return dataclasses.replace(found, away=self._away)


class _Host:
    """The conversation with a host that speaks for itself."""

    def __init__(self, record: RunRecord, streams: Streams, alone: _Alone) -> None:
        self._record = record
        self._streams = streams
        self._alone = alone

    def converse(self, session: Session) -> bool:
        record, name = self._record, session.host.name
        while not self._alone.over:
            answer = request_of_status(record).put(record, session)
            self._streams.tell(_Told(name, answer))
            if answer["run"] is None:
                return False
            asked = time.monotonic()
            for message in watched(record, session, for_s=LOOK_AGAIN_S):
                self._streams.tell(self._changed(name, answer, message.of(States), asked), message.size)
            if time.monotonic() - asked < LOOK_AGAIN_S / 2:
                return False  # all that it had to do is done
        return False

    def _changed(self, name: str, answer: StatusResult, told: States, asked: float) -> _Told:
        with about(name, "sent invalid `states`"):
            if told["state"] is None:
                raise wrong("state", f"that of {name}", None)
            check_state("state", told["state"], told["run"], name, self._record.names_on(name))
        now = answer["time"] + time.monotonic() - asked
        changed: StatusResult = {**answer, "state": told["state"], "time": now}
        return _Told(name, changed)


def follow_log(
    record: RunRecord, transport: Transport, task: TaskId, lines: int
) -> Generator[LogLines | Away | Back | None, None, None]:
    """Endless: an attempt that has ended may be followed by another. Raises TransportError for an unknown host."""
    host = record.way_to(record.roster[task])
    with Streams(transport) as streams:
        streams.begin(host, LogStream(record, host, LogRequest((task,), lines=lines), streams).converse)
        for told in streams.all(TICK_S):
            if told is None or isinstance(told, LogLines | Away | Back):
                yield told


TAGS = ("loss", "*/loss", "loss_*", "*_loss", "*/loss_*")
POINTS = 200
"""Of the past."""

_MOST_NAMES = 200

_OF_OTHERS = ("eval", "valid", "test")
"""What is in the names of losses that the training does not make."""

Name = tuple[str, str, str]
"""Directory, name below it, and tag."""


def follow_loss(record: RunRecord, transport: Transport) -> Generator[Series | None, None, None]:
    """The points of every loss, first those of the past; ends where there is nothing to follow. None now and then."""
    host = record.coordinator
    lead_alone = dataclasses.replace(record, hosts={host: record.way_to(host)}, others={})
    for told in follow_metrics(lead_alone, transport, TAGS, points=POINTS):
        if isinstance(told, Away):
            if told.final:
                return
        elif told is None or isinstance(told, Series):
            yield told


class Losses:
    """All losses that were told; `best` is the one of the training."""

    def __init__(self) -> None:
        self._points: dict[Name, list[Point]] = {}

    def add(self, series: Series) -> None:
        name = (series.directory, series.name, series.tag)
        if name not in self._points and len(self._points) >= _MOST_NAMES:
            return
        points = self._points.setdefault(name, [])
        points.extend(series.points)
        if len(points) > 4 * POINTS:  # a curve has no room for more
            points[:] = [*points[:-1:2], points[-1]]

    def best(self) -> list[Point]:
        """Empty where there is none."""
        if not self._points:
            return []
        return self._points[min(self._points, key=_rank)]


def _rank(name: Name) -> tuple[bool, bool, int, Name]:
    _, run, tag = name
    of_others = any(word in part.lower() for part in (run, tag) for word in _OF_OTHERS)
    return of_others, tag != "loss", len(tag), name
