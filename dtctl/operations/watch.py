"""Watches a run: its state, and each change of it, over conversations that stay open.

The coordinator's host reports all tasks. While it is away every other host is asked for itself.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from dtctl.agent.records.answers import RunResult, States, StatusResult
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.operations.client import about, final, frames_of, request
from dtctl.operations.client.plausible import check_states, check_view, possible_tasks
from dtctl.operations.client.streams import Disconnected, Reconnected, Streams
from dtctl.operations.coordinator import (
    ask_whole_run,
    coordinator_away,
    request_of_status,
    status_by_coordinator,
    status_of_hosts,
)
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import CoordinatorUnreachable, RunStatus
from dtctl.operations.status import status_elsewhere
from dtctl.transport.seam import Message, Session, Transport

TICK_S = 0.1

TOGETHER_S = 0.5
"""How often the hosts' own reports are merged, at most."""

LOOK_AGAIN_S = 5.0
"""How often a host is asked for what it does not report by itself: its checkpoints, and whether the run is over."""


@dataclass(frozen=True)
class Over:
    """Nothing more will happen to the run."""


Report = RunStatus | Disconnected | Reconnected | Over


def watch_run(record: RunRecord, transport: Transport) -> Generator[Report | None, None, None]:
    """The events of a run as they come, endlessly; None whenever nothing came for a while.

    Raises DtctlError when no host knows a run, before anything else is reported.
    """
    watching = Watching(record, transport, LOOK_AGAIN_S)
    while True:
        with Streams(transport) as streams:
            watching.begin(streams)
            for message in streams.all(TICK_S):
                yield from watching.observe(message)
                if watching.moved:
                    break


@dataclass(frozen=True)
class _OwnReport:
    """A host's report about itself."""

    host: str
    answer: StatusResult


class Watching:
    """Whom the watch asks, and the hosts' own reports while the coordinator was away.

    `look_again_s`: how often the coordinator is asked for what it does not report by itself; None: at the end alone.
    """

    def __init__(self, record: RunRecord, transport: Transport, look_again_s: float | None) -> None:
        self.record = record
        self.moved = False
        """Whether the run has moved to other hosts: everything starts again."""
        self._transport = transport
        self._look_again_s = look_again_s
        self._streams: Streams | None = None
        self._known = False
        """Whether anything was reported of the run."""
        self._alone: _Alone | None = None
        """The hosts' own reports, while the coordinator is away."""

    def begin(self, streams: Streams) -> None:
        self.moved, self._streams, self._alone = False, streams, None
        converse = partial(_converse_with_coordinator, self.record, streams, self._look_again_s)
        streams.begin(self.record.route_to(self.record.coordinator), converse)

    def observe(self, message: object) -> Iterator[Report | None]:
        """The event that a message of the streams means; None if it is not about the watch."""
        if isinstance(message, RunStatus):
            self._known = True
            self.moved = message.record.moved != self.record.moved
            self.record = message.record if self.moved or self.record.run is None else self.record
            self._end_alone()
            yield message
        elif isinstance(message, Disconnected | Reconnected):
            yield from self._contact(message)
        elif isinstance(message, _OwnReport):
            if self._alone is not None:
                self._alone.receive(message)
        elif message is None or isinstance(message, Over):
            yield message
        if self._alone is not None and (found := self._alone.news()) is not None:
            self._move_to(found)
            yield found

    def _contact(self, change: Disconnected | Reconnected) -> Iterator[Report]:
        if change.host != self.record.coordinator:
            if isinstance(change, Disconnected) and self._alone is not None:
                self._alone.lose(change)
            return
        if isinstance(change, Reconnected):
            yield change
            return
        if not self._known:
            found = status_elsewhere(coordinator_away(change.host, change.error), self.record, self._transport)
            self._known = True
            self._move_to(found)
            yield found
        if not self.moved:
            yield change
            self._ask_each(change)

    def _move_to(self, found: RunStatus) -> None:
        if found.coordination is not None or found.record.coordinator != self.record.coordinator:
            self.record, self.moved = found.record, True

    def _ask_each(self, away: Disconnected) -> None:
        """Lets every other host report its own tasks until the coordinator is back."""
        assert self._streams is not None
        if self._alone is None:
            self._alone = _Alone(self.record, self._transport, self._streams, away)
            self._alone.begin()

    def _end_alone(self) -> None:
        if self._alone is not None:
            self._alone.over = True
            self._alone = None


def _watched(record: RunRecord, session: Session, **fields: Any) -> Iterator[Message]:
    """The `states` that a host sends when they change, until its watch has ended."""
    session.send({**request(record, session.host, "watch"), **fields})
    for message in frames_of(session, "states", most_bytes=None):
        if message.type == "states":
            yield message
    final(record, session, "watch", message, RunResult)


def _converse_with_coordinator(
    record: RunRecord, streams: Streams, look_again_s: float | None, session: Session
) -> bool:
    """Sends `status`, then `watch` for a while, and repeats that. Returns whether to begin again, because tasks have
    moved.
    """
    while True:
        asked = time.monotonic()
        known, answer = ask_whole_run(record, session)
        streams.put(status_by_coordinator(known, answer))
        began = time.monotonic()
        if _report_changes(known, session, streams, answer, asked, look_again_s):
            return True
        if look_again_s is None or time.monotonic() - began < look_again_s / 2:  # only if nothing more will happen
            answer = request_of_status(known).put(known, session)
            if answer["coordination"] is not None:
                streams.put(status_by_coordinator(known, answer))
            streams.put(Over())
            return False


def _report_changes(
    known: RunRecord,
    session: Session,
    streams: Streams,
    answer: StatusResult,
    asked: float,
    look_again_s: float | None,
) -> bool:
    """Reports each change of the whole run, with the checkpoints of the last answer. Returns whether its tasks have
    moved.
    """
    assert known.run is not None
    assert answer["inventory"] is not None
    for message in _watched(known, session, **({} if look_again_s is None else {"for_s": look_again_s})):
        if (view := message.of(States)["coordination"]) is not None:
            if view["moved"] != answer["inventory"]["moved"]:
                return True
            with about(session.host.name, "sent invalid `states`"):
                check_view(view, known.run, possible_tasks(answer["inventory"]))
            now = max(view["time"], answer["time"] + time.monotonic() - asked)  # a view may be a few seconds old
            latest: StatusResult = {**answer, "coordination": view, "time": now}
            streams.put(status_by_coordinator(known, latest), message.size)
    return False


class _Alone:
    """The hosts' own reports while the coordinator's host is away."""

    def __init__(self, record: RunRecord, transport: Transport, streams: Streams, coordinator: Disconnected) -> None:
        self.over = False
        """Whether the coordinator answers again: the conversations end."""
        self._record = record
        self._transport = transport
        self._streams = streams
        self._answers: dict[str, StatusResult] = {}
        self._errors: dict[str, DtctlError] = {coordinator.host: coordinator.error}
        self._away: CoordinatorUnreachable | None = None
        with suppress(DtctlError):  # another error than that the host is away
            self._away = coordinator_away(coordinator.host, coordinator.error)
        self._changed = True
        self._next = 0.0

    def begin(self) -> None:
        hosts, unknown = self._record.routes_to(name for name in self._record.hosts if name not in self._errors)
        self._errors.update(unknown)
        for host in hosts:
            self._streams.begin(host, partial(_converse_with_host, self._record, self._streams, self))

    def receive(self, report: _OwnReport) -> None:
        self._errors.pop(report.host, None)
        self._answers[report.host] = report.answer
        self._changed = True

    def lose(self, lost: Disconnected) -> None:
        self._answers.pop(lost.host, None)
        self._errors[lost.host] = lost.error
        self._changed = True

    def news(self) -> RunStatus | None:
        """None if nothing is new, or before each host has reported or is known to be away. Asks no host."""
        complete = set(self._record.hosts) <= self._answers.keys() | self._errors.keys()
        if not self._changed or not complete or time.monotonic() < self._next:
            return None
        self._changed, self._next = False, time.monotonic() + TOGETHER_S
        found = status_of_hosts(self._record, self._transport, self._errors, self._answers)
        if not found.time:
            return None
        return dataclasses.replace(found, away=self._away)


def _converse_with_host(record: RunRecord, streams: Streams, alone: _Alone, session: Session) -> bool:
    """The conversation with a host that reports its own tasks."""
    name = session.host.name
    while not alone.over:
        answer = request_of_status(record).put(record, session)
        streams.put(_OwnReport(name, answer))
        if answer["run"] is None:
            return False
        asked = time.monotonic()
        for message in _watched(record, session, for_s=LOOK_AGAIN_S):
            with about(name, "sent invalid `states`"):
                state = check_states(message.of(States), name, record.names_on(name))
            changed: StatusResult = {**answer, "state": state, "time": answer["time"] + time.monotonic() - asked}
            streams.put(_OwnReport(name, changed), message.size)
        if time.monotonic() - asked < LOOK_AGAIN_S / 2:
            return False  # everything that it had to do is done
    return False
