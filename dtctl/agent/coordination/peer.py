"""The other end of a link: messages over a stream, and the beats by which each end knows of the other."""

from __future__ import annotations

from .lines import LineBuffer, Lost, decode, encode
from .messages import BEAT, check
from .pulse import SILENCE_S, Pulse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Mapping

    from .lines import Message
    from .messages import Shapes
    from .stream import Stream


class Peer:
    """`shapes`: what it may say. Methods raise Lost."""

    def __init__(self, stream: Stream, shapes: Shapes, now: float) -> None:
        self.stream = stream
        self.pulse = Pulse(now)
        self._shapes = shapes
        self._lines = LineBuffer()

    def receive(self, now: float) -> List[Message]:
        """What has arrived, without beats."""
        return self.understand(now) if self.stream.pull() else []

    def understand(self, now: float) -> List[Message]:
        """As `receive`, of what the stream has already pulled."""
        messages = [decode(line) for line in self._lines.feed(self.stream.read())]
        for message in messages:
            check(message, self._shapes)
        self.pulse.heard(now)
        return [message for message in messages if message["type"] != "beat"]

    def send(self, message: Mapping[str, object], now: float) -> None:
        self.stream.write(encode(message))
        self.pulse.said(now)

    def keep(self, now: float) -> None:
        """Sends a beat when it is time for one."""
        if self.pulse.is_lost(now):
            raise Lost("nothing was heard from it for %d s" % SILENCE_S)
        if self.pulse.wants_beat(now):
            self.send(BEAT, now)
