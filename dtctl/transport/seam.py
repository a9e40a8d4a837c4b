"""The interface of a transport to the rest of dtctl: conversations with agents. Tests put fakes here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Type, TypeVar, cast  # noqa: UP035 (`type` is a property of Message)

from dtctl.agent.rooms import FRAMES
from dtctl.dataclass import dataclass
from dtctl.model import SshSettings
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.timeouts import UNOBSERVED, Waiting

if TYPE_CHECKING:
    from dtctl.model import Host


R = TypeVar("R")


@dataclass(frozen=True)
class Message:
    """One frame of the agent protocol (docs/agent.md): a JSON object and, for some, raw bytes."""

    fields: Mapping[str, Any]
    payload: bytes = b""
    size: int = field(default=0, compare=False)
    """The size of the frame on the wire."""

    @property
    def type(self) -> str:
        return str(self.fields["type"])

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def of(self, record: Type[R]) -> R:  # noqa: UP006
        """The fields of a received frame, typed by the record of its type."""
        assert FRAMES[self.type].endswith(f".{record.__name__}")
        return cast("R", self.fields)


class Session(Protocol):
    """A conversation with the agent on one host: one connection, one remote process.

    Safe for one sender and one receiver thread at a time. Closing it is always allowed, from any thread.
    """

    @property
    def host(self) -> Host: ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """The agent's greeting (records.answers.Greeting), after waiting for it. Raises as `receive`."""
        ...

    def greeted(self) -> float:
        """Waits for the greeting. Returns when it arrived, in Unix seconds."""
        ...

    def send(self, fields: Mapping[str, Any], payload: bytes = b"") -> None:
        """Sends a frame. Raises ConnectionLost, and TransportError if the host reads nothing for too long."""
        ...

    def receive(self, timeout_s: float | None = None) -> Message:
        """The next frame with content. All but a `result` are checked against their records (`wire.checked_frame`).

        Raises AgentError for an error frame, ConnectionLost at the end, TransportError for a frame that no agent sends
        and for a silence that is too long, TimeoutError.
        """
        ...

    def close(self) -> None: ...


class Transport(Protocol):
    """Opens conversations."""

    def open(self, host: Host) -> Session:
        """Connects without waiting for the agent: its greeting comes with the first answer.

        Raises TransportError with what was tried, what came back and what to do next.
        """
        ...


def answering(transport: Transport, host: Host) -> Session:
    """A conversation whose agent has greeted, for callers that need to know that it answers.

    Raises as `open` and `receive`.
    """
    session = transport.open(host)
    try:
        session.greeted()
    except BaseException:
        session.close()
        raise
    return session


@dataclass(frozen=True)
class TransportOptions:
    local_root: Path | None = None
    """The directory of this machine's agents, in place of ~/.dtctl."""
    ssh_files: ConfigFiles = field(default_factory=ConfigFiles)
    passphrase: Callable[[str], str | None] | None = None
    """Prompts for a key file's passphrase, once per key; None without a terminal."""
    asking: Callable[[str], AbstractContextManager[None]] | None = None
    """Entered with a host's name while `ssh` prompts on the terminal; None without a terminal."""
    waiting: Waiting = UNOBSERVED
    """Reports what is awaited, and silent hosts before they are given up."""


class NamingTransport(Transport, Protocol):
    def hostname(self, settings: SshSettings) -> str:
        """The name or address that SSH connects to."""
