"""Conversations that are kept open, for callers that ask the same hosts repeatedly: one connection to each host."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Any

from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, ConnectionLost, DtctlError, TransportError
from dtctl.model import Host, Reach, SshSettings
from dtctl.operations.client import Progress, Report, reporting_failure, silent
from dtctl.transport import timeouts
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Message, Session, Transport, answering


@dataclass(frozen=True)
class Greeted:
    """A host's greeting. Times are those of this machine."""

    facts: Mapping[str, Any]
    """records.answers.Greeting."""
    connect_s: float
    """The time until its greeting: connection, login and the start of Python."""


class RecordingTransport:
    """A transport that records the greeting of each host. `report` gets the progress of connections, and failures."""

    def __init__(self, transport: Transport, report: Report = silent) -> None:
        self._transport = transport
        self._report = report
        self.greeted: dict[str, Greeted] = {}

    def open(self, host: Host) -> Session:
        self._report(Progress(host.name, "connect"))
        began = time.monotonic()
        session = reporting_failure(partial(answering, self._transport), self._report)(host)
        self.greeted[host.name] = Greeted(session.facts, time.monotonic() - began)
        return session


AGAIN_S = (2.0, 5.0, 10.0, 15.0)
"""The delays between attempts to reach an unreachable host; the last one repeats."""


class NotAsked(TransportError):
    """A host that did not finish an earlier answer, and is not asked again."""


@dataclass(frozen=True)
class _Refusal:
    error: DtctlError
    times: int
    until: float


class PersistentTransport:
    """A transport whose conversations continue after they were closed. A context manager: at its end they are over.

    One that an error has ended, or that was left within an answer, is started again. A host that cannot be reached, or
    did not answer in time, is not dialled for a while: until then it fails at once.
    """

    def __init__(self, transport: Transport, again_s: Sequence[float] = AGAIN_S, most: float = math.inf) -> None:
        """`most`: how many idle conversations are kept."""
        self._transport = transport
        self._again_s = again_s
        self._most = most
        self._idle: dict[str, Session] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._coming: dict[str, tuple[Host, Future[None]]] = {}
        """Conversations that were begun before they are asked for."""
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> PersistentTransport:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self.hand_over():
            session.close()

    def hand_over(self) -> list[Session]:
        """Hands the idle conversations to the caller, and keeps no others from then on."""
        with self._lock:
            self._over = True
            idle, self._idle = self._idle, {}
        return list(idle.values())

    def expect(self, hosts: Collection[Host]) -> None:
        """Begins conversations with hosts that will be queried soon; `open` waits for one that is being started.

        Where a host has been found to be away since, `open` gets it with a shorter timeout, and waits no longer.
        """
        with self._lock:
            self._coming.update({host.name: (host, Future()) for host in hosts})
        threading.Thread(target=fan_out, args=(hosts, self._begin_early), daemon=True).start()

    def _begin_early(self, host: Host) -> None:
        """Begins a conversation; `open` raises its error later."""
        try:
            if not self._over:
                self.give_back(self.begin(host))
        except TransportError:
            pass
        finally:
            self._coming[host.name][1].set_result(None)

    def _await_early(self, host: Host) -> None:
        if (coming := self._coming.get(host.name)) is None:
            return
        expected, begun = coming
        limit_s = _shorter_s(host.reach, expected.reach)
        if not wait([begun], limit_s).done:
            raise TransportError(f"{host.name} cannot be connected to within {limit_s:g} s")

    def open(self, host: Host) -> Session:
        self._await_early(host)
        with self._lock:
            session = self._idle.pop(host.name, None)
            refusal = self._refusals.get(host.name)
        if session is not None:
            return _Lent(session, self, kept=True)
        if refusal is not None and time.monotonic() < refusal.until:
            raise refusal.error.with_traceback(None)
        return _Lent(self.begin(host), self, kept=False)

    def begin(self, host: Host) -> Session:
        """A new conversation."""
        began = time.monotonic()
        try:
            session = answering(self._transport, host)
        except TransportError as error:
            self._leave_alone(host.name, error, began)
            raise
        with self._lock:
            self._refusals.pop(host.name, None)
        return session

    def give_up(self, session: Session, since: float) -> None:
        """Closes a conversation, instead of `give_back`, whose answer has not come since `since` (monotonic)."""
        session.close()
        name = session.host.name
        self._leave_alone(name, NotAsked(f"{name} was not asked, as it had not finished an earlier answer"), since)

    def _leave_alone(self, host: str, error: TransportError, since: float) -> None:
        """Refuses the host for some time, at least as long as it has kept others waiting."""
        with self._lock:
            known, now = self._refusals.get(host), time.monotonic()
            times = known.times if known is not None else 0
            again_s = self._again_s[min(times, len(self._again_s) - 1)]
            until = now + max(again_s, now - since)
            self._refusals[host] = _Refusal(error.with_traceback(None), times + 1, until)

    def give_back(self, session: Session) -> None:
        with self._lock:
            if not self._over and session.host.name not in self._idle and len(self._idle) < self._most:
                self._idle[session.host.name] = session
                return
        session.close()


def _shorter_s(now: Reach, before: Reach) -> float | None:
    """The timeout of a connection, if it is shorter than before."""
    if not (isinstance(now, SshSettings) and isinstance(before, SshSettings)):
        return None
    return now.connect_timeout_s if now.connect_timeout_s < before.connect_timeout_s else None


def for_one_command(transport: Transport) -> PersistentTransport:
    """A transport for one command with several requests to each host; hosts that failed are not tried again."""
    return PersistentTransport(transport, (math.inf,), most=8)


class _Lent:
    """A conversation until it is closed. What it is asked only reads, so it may be asked twice."""

    def __init__(self, session: Session, keeper: PersistentTransport, *, kept: bool) -> None:
        self._session = session
        self._keeper = keeper
        self._kept = kept
        """Whether it is reused and nothing has arrived since: its host may be gone."""
        self._asked: list[tuple[Mapping[str, Any], bytes]] = []
        """Requests without a result yet."""
        self._since = time.monotonic()
        self._broken = False
        self._late = False
        """Whether the caller's timeout has expired."""

    @property
    def host(self) -> Host:
        return self._session.host

    @property
    def facts(self) -> Mapping[str, Any]:
        return self._session.facts

    def greeted(self) -> float:
        return self._session.greeted()

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        self._asked.append((fields, payload))
        try:
            self._session.send(fields, payload)
        except ConnectionLost as error:
            self._begin_anew(error)

    def receive(self, timeout_s: float | None = None) -> Message:
        try:
            message = self._receive(timeout_s)
        except TimeoutError:
            self._late = True
            raise
        except AgentError:  # this counts as an answer, too
            self._broken = True
            self._asked.clear()
            raise
        except BaseException:
            self._broken = True
            raise
        self._kept = False
        if message.type == "result":
            del self._asked[:1]
        return message

    def close(self) -> None:
        waited_s = time.monotonic() - self._since
        if self._asked and (self._late or waited_s >= timeouts.TOLD_AFTER_S):
            self._keeper.give_up(self._session, self._since)
        elif self._asked or self._broken:
            self._session.close()
        else:
            self._keeper.give_back(self._session)

    def _receive(self, timeout_s: float | None) -> Message:
        try:
            return self._session.receive(timeout_s)
        except ConnectionLost as error:
            self._begin_anew(error)
            return self._session.receive(timeout_s)

    def _begin_anew(self, error: ConnectionLost) -> None:
        """Repeats all requests over a new connection if a reused one was lost unanswered; else raises `error`."""
        if not self._kept:
            self._broken = True
            raise error
        self._kept = False
        with suppress(DtctlError):
            self._session.close()
        try:
            self._session = self._keeper.begin(self._session.host)
            for fields, payload in self._asked:
                self._session.send(fields, payload)
        except BaseException:
            self._broken = True
            self._asked.clear()  # the reason is known
            raise
