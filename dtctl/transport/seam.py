"""What the rest of dtctl knows of a transport: conversations with agents. Fakes for tests stand here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dtctl.model import Host


@dataclass(frozen=True)
class Message:
    """One frame of the agent protocol (docs/agent.md): a JSON object and, for some, raw bytes."""

    fields: Mapping[str, Any]
    payload: bytes = b""

    @property
    def type(self) -> str:
        return str(self.fields["type"])

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


class Session(Protocol):
    """A conversation with the agent on one host: one connection, one remote process.

    Safe for one sender and one receiver thread at a time. Closing it is always allowed, from any thread.
    """

    @property
    def host(self) -> Host: ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """The agent's greeting: python, hostname, user, home, root, pid, time."""
        ...

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        """Raises ConnectionLost."""
        ...

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next frame. Raises AgentError for an error frame, ConnectionLost at the end, TimeoutError."""
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Opens conversations."""

    def open(self, host: Host) -> Session:
        """Raises TransportError with what was tried, what came back and what to do next."""
        ...
