"""Messages over a TLS connection: lines of JSON and their records, beats, and the delays between dials."""

from __future__ import annotations

import json

from ..records import kinds
from ..records.kinds import InvalidValue, checked
from ..records.messages import (
    PROTOCOL,
    Canvass,
    Elsewhere,
    Events,
    Granted,
    Hello,
    Lease,
    News,
    Orders,
    Over,
    Ping,
    Pong,
    Refusal,
    Stance,
    TaskProgress,
    Vote,
    Welcome,
)
from .tls import Lost, TlsStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, TypedDict, Union

    Message = Dict[str, Any]

    class Gone(TypedDict):
        """A connection has ended; `last_received`: when something was last received on it, on the monotonic clock."""

        type: Literal["gone"]
        reason: str
        last_received: float

    class Invalid(TypedDict):
        """A host sent an invalid message; its connection was closed."""

        type: Literal["invalid"]
        reason: str

    class Superseded(TypedDict):
        """The agent of an earlier run was sent the end of that run."""

        type: Literal["superseded"]
        run: str

    class Left(TypedDict):
        """A host has reported for itself that nothing of an earlier run is left there."""

        type: Literal["left"]
        run: str

    class Connected(TypedDict):
        """The connection is ready for a hello."""

        type: Literal["connected"]

    FromHub = Union[Hello, News, TaskProgress, Events, Granted, Canvass, Ping, Gone, Invalid, Superseded, Left]
    FromDialer = Union[Welcome, Orders, Lease, Vote, Stance, Elsewhere, Over, Pong, Refusal, Gone, Connected]


LINE_LIMIT = 1 << 20
"""The most bytes of a line, without its line end."""


class Violation(Lost):
    """The other end violated the protocol."""


class LineBuffer:
    """Cuts a stream into lines. An unfinished one is kept, up to the limit."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def feed(self, data: bytes) -> List[bytes]:
        """The lines that are complete now. Raises Violation."""
        *complete, rest = data.split(b"\n")
        lines: List[bytes] = []
        for piece in complete:
            self._add(piece)
            lines.append(bytes(self._begun))
            self._begun.clear()
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if len(self._begun) + len(piece) > LINE_LIMIT:
            raise Violation("a line of more than %d bytes was sent" % LINE_LIMIT)
        self._begun += piece


def encode(message: Mapping[str, Any]) -> bytes:
    """The line. Raises Lost for one that the other end would not take."""
    try:
        line = json.dumps(message, separators=(",", ":"), allow_nan=False).encode("ascii")
    except ValueError as error:
        raise Lost("a message (%s) cannot be sent: %s" % (message.get("type"), error)) from None
    if len(line) > LINE_LIMIT:
        raise Lost("a message of %d bytes (%s) is too long to be sent" % (len(line), message.get("type")))
    return line + b"\n"


def decode(line: bytes) -> Message:
    """The message, whatever its type. Raises Violation."""
    try:
        message = kinds.parse_json(line)
    except ValueError:
        raise Violation("a line that is not a message was sent") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise Violation("a line that is not a message was sent")
    return message


BEAT = {"type": "beat"}


def check(message: Dict[str, Any], records: Mapping[str, Any]) -> Any:
    """The message as the record of its type. Raises Violation."""
    name = message["type"]
    if name not in records:
        raise Violation("a message of an unknown type was sent")
    if name in ("hello", "welcome") and message.get("v") != PROTOCOL:
        raise Violation("it speaks another version of the protocol, not version %d" % PROTOCOL)
    try:
        return checked(records[name], message)
    except InvalidValue as wrong:
        raise Violation("the message %s is invalid: %s" % (name, wrong)) from None


BEAT_S = 3.0
SLACK_S = 0.5
"""Beats may go out this much earlier, so that those for many connections go together."""

SILENCE_S = 10.0
RETRY_FIRST_S = 0.125
RETRY_SOON_S = 3.0
"""The longest delay in the first minute: a coordinator that is started again, or has its port again, is found soon."""

SOON_FOR_S = 60.0
RETRY_LAST_S = 15.0


class Retry:
    """The delays between attempts, each drawn between half and all of a limit that doubles: no two agents keep step."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._limit_s = RETRY_FIRST_S
        self._failing_since: Optional[float] = None

    def next_s(self, now: float) -> float:
        if self._failing_since is None:
            self._failing_since = now
        last_s = RETRY_SOON_S if now - self._failing_since < SOON_FOR_S else RETRY_LAST_S
        limit_s = min(self._limit_s, last_s)
        self._limit_s = limit_s * 2
        return limit_s * (1 + self._random()) / 2

    def reset(self) -> None:
        self._limit_s = RETRY_FIRST_S
        self._failing_since = None


_BEAT = encode(BEAT).rstrip()
"""A beat as this dtctl writes it: most messages of hundreds of idle agents, not worth parsing."""


class Peer:
    """The other end of a connection. `records`: the messages that it may send. Methods raise Lost.

    `now` is the monotonic clock, here and everywhere in the link.
    """

    def __init__(self, stream: TlsStream, records: Mapping[str, Any], now: float) -> None:
        self.stream = stream
        self.last_received = now
        self._sent_at = now
        self._records = records
        self._lines = LineBuffer()

    def due(self) -> float:
        """When to call `keep` again."""
        return min(self._sent_at + BEAT_S, self.last_received + SILENCE_S)

    def receive(self, now: float) -> List[Any]:
        """Received messages, without beats."""
        return self.understand(now) if self.stream.pull() else []

    def understand(self, now: float) -> List[Any]:
        """Does the same as `receive` for bytes that the stream has already pulled."""
        lines = [line for line in self._lines.feed(self.stream.read()) if line != _BEAT]
        messages = [check(decode(line), self._records) for line in lines]
        self.last_received = now
        return [message for message in messages if message["type"] != "beat"]

    def send(self, message: Mapping[str, object], now: float) -> None:
        self.stream.write(encode(message))
        self._sent_at = now

    def keep(self, now: float) -> None:
        """Sends a beat when it is time for one."""
        if now - self.last_received >= SILENCE_S:
            raise Lost("it sent nothing for %d s" % SILENCE_S)
        if now - self._sent_at >= BEAT_S - SLACK_S:
            self.send(BEAT, now)
