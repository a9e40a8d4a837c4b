"""Agents that answer from a script, at the Transport seam."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dtctl.errors import AgentError, ConnectionLost, DtctlError
from dtctl.model import Host, SshSettings
from dtctl.transport.seam import Message, Session
from dtctl.transport.wire import checked_frame

Answer = Callable[["FakeSession", Mapping[str, Any]], list[dict[str, Any] | DtctlError]]
"""What an agent says to a frame: messages, and errors that end the conversation."""

BEATS_FOR_EVER: dict[str, Any] = {"type": "beat"}
"""In place of an answer: whoever waits for one runs out of patience, at once."""


class FakeSession:
    """`patient`: who receives before there is an answer waits for it."""

    def __init__(self, host: Host, answer: Answer, patient: bool = False) -> None:
        self.host = host
        self.facts: Mapping[str, Any] = {"hostname": host.name}
        self.received: list[str] = []
        self.closed = False
        self._answer = answer
        self._pending: list[dict[str, Any] | DtctlError] = []
        self._ended = False
        self._patient = patient
        self._changed = threading.Condition()

    def greeted(self) -> float:
        return time.time()

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        with self._changed:
            if self._ended or self.closed:
                raise ConnectionLost(f"{self.host.name} has gone")
            self.received.append(str(fields["type"]))
            self._pending += self._answer(self, fields)
            self._changed.notify_all()

    def add(self, message: dict[str, Any] | DtctlError) -> None:
        """The agent says this by itself."""
        with self._changed:
            self._pending.append(message)
            self._changed.notify_all()

    def receive(self, timeout_s: float | None = None) -> Message:
        with self._changed:
            if self._patient:
                self._changed.wait_for(lambda: self._pending or self._ended, 10)
            if not self._pending:
                raise ConnectionLost(f"{self.host.name} has gone")
            message = self._pending.pop(0)
            if message == BEATS_FOR_EVER:
                assert timeout_s is not None, "nobody waits for ever"
                raise TimeoutError
            if isinstance(message, DtctlError):
                self._ended = True
                raise message
            payload = message.pop("payload", b"")
            return checked_frame(self.host.name, Message(message, payload, len(payload)))

    def close(self) -> None:
        self.closed = True


class FakeTransport:
    """Hosts named in `unreachable` cannot be connected to."""

    def __init__(
        self, answer: Answer, unreachable: Mapping[str, DtctlError] | None = None, patient: bool = False
    ) -> None:
        self._patient = patient
        self.sessions: dict[str, FakeSession] = {}
        self.opened: list[str] = []
        self._answer = answer
        self._unreachable = unreachable or {}
        self._lock = threading.Lock()

    def open(self, host: Host) -> Session:
        with self._lock:
            self.opened.append(host.name)
            if host.name in self._unreachable:
                raise self._unreachable[host.name]
            session = FakeSession(host, self._answer, self._patient)
            self.sessions[host.name] = session
            return session

    def hostname(self, settings: SshSettings) -> str:
        return settings.target


def rolled_back() -> AgentError:
    return AgentError("rolled_back", "rolled back")
