"""The other end of a link: messages over a stream, and the beats by which each end knows of the other."""

from __future__ import annotations

from .keepalive import SILENCE_S, Keepalive
from .lines import LineBuffer, Lost, decode, encode
from .messages import BEAT, check

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Mapping

    from .stream import TlsStream


_BEAT = encode(BEAT).rstrip()
"""As this dtctl writes it: most of what hundreds of idle agents say, and not worth reading."""


class Peer:
    """`records`: what it may say. Methods raise Lost."""

    def __init__(self, stream: TlsStream, records: Mapping[str, Any], now: float) -> None:
        self.stream = stream
        self.keepalive = Keepalive(now)
        self._records = records
        self._lines = LineBuffer()

    def receive(self, now: float) -> List[Any]:
        """What has arrived, without beats."""
        return self.understand(now) if self.stream.pull() else []

    def understand(self, now: float) -> List[Any]:
        """Like `receive`, for bytes that the stream has already pulled."""
        lines = [line for line in self._lines.feed(self.stream.read()) if line != _BEAT]
        messages = [check(decode(line), self._records) for line in lines]
        self.keepalive.heard(now)
        return [message for message in messages if message["type"] != "beat"]

    def send(self, message: Mapping[str, object], now: float) -> None:
        self.stream.write(encode(message))
        self.keepalive.said(now)

    def keep(self, now: float) -> None:
        """Sends a beat when it is time for one."""
        if self.keepalive.is_lost(now):
            raise Lost("nothing was heard from it for %d s" % SILENCE_S)
        if self.keepalive.wants_beat(now):
            self.send(BEAT, now)
