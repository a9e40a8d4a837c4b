"""Relays the connections of a browser, as frames of a conversation, to a server that this session has started.

The controller names no port. The data in transit is bounded: neither side sends more of a connection than the other has
room for, and each reports the bytes that have reached their receiver.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from contextlib import suppress

from ...conversation import Aborted, Conversation, expect_control
from .records import MOST_CHANNELS, PIECE_BYTES, SILENCE_S, WINDOW_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Callable, Dict, Mapping, Optional


_LOOK_S = 1.0
_CONNECT_S = 5.0


class Channel:
    """One connection to the server."""

    def __init__(self, server: socket.socket) -> None:
        self.server = server
        self.room = WINDOW_BYTES
        """The number of bytes that the controller still accepts."""
        self.pending = bytearray()
        """Bytes for the server."""
        self.closing = False
        """Whether the browser has disconnected: only the pending bytes remain."""

    @property
    def open_for_more(self) -> bool:
        return self.room > 0 and not self.closing


class TensorboardRelay:
    """`line`: passes connections to TensorBoard. `look` is called from time to time."""

    def __init__(
        self, talk: Conversation, line: socket.socket, child: subprocess.Popen[bytes], refresh: Callable[[], None]
    ) -> None:
        self._talk = talk
        self._line = line
        line.settimeout(_CONNECT_S)
        self._child = child
        self._refresh = refresh
        self._channels: Dict[int, Channel] = {}
        self._last_message = time.monotonic()

    def serve(self) -> str:
        """Relays until the server has ended, the controller ends it, or is silent; returns which. Raises Gone."""
        try:
            while self._child.poll() is None:
                if time.monotonic() - self._last_message > SILENCE_S:
                    return "silent"
                self._step()
                self._refresh()
            return "ended"
        except Aborted:
            return "asked"
        finally:
            for number in list(self._channels):
                self._drop(number)

    def _step(self) -> None:
        wire = self._talk.wire
        readers = {one.server.fileno(): number for number, one in self._channels.items() if one.open_for_more}
        writers = {one.server.fileno(): number for number, one in self._channels.items() if one.pending}
        readable, writable, _ = select.select([wire.fileno(), *readers], list(writers), [], _LOOK_S)
        for ready in writable:
            self._write(writers[ready])
        for ready in readable:
            if ready == wire.fileno():
                frame = wire.poll(0)
                if frame is not None:
                    self._take(frame[0], frame[1])
            elif readers[ready] in self._channels:
                self._read(readers[ready])

    def _take(self, fields: Mapping[str, object], payload: bytes) -> None:
        self._last_message = time.monotonic()
        frame = expect_control(fields, "alive", "open", "piece", "taken", "closed")
        kind = frame["type"]
        if kind == "alive":
            return
        number = frame["channel"]
        if kind == "open":
            self._open(number)
            return
        channel = self._channels.get(number)
        if channel is None:
            return  # it is already closed here
        if kind == "taken":
            channel.room = min(WINDOW_BYTES, channel.room + frame["size"])
        elif kind == "closed":
            channel.closing = True
            if not channel.pending:
                self._drop(number)
        elif len(channel.pending) + len(payload) > WINDOW_BYTES:
            self._close(number)  # more than it has room for
        else:
            channel.pending += payload

    def _open(self, number: int) -> None:
        if len(self._channels) >= MOST_CHANNELS or number in self._channels:
            self._talk.send("closed", {"channel": number})
            return
        server, far = socket.socketpair()
        with far:
            try:
                self._line.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [far.fileno()]))])
            except OSError:
                server.close()
                self._talk.send("closed", {"channel": number})
                return
        server.setblocking(False)
        self._channels[number] = Channel(server)

    def _read(self, number: int) -> None:
        channel = self._channels[number]
        data: Optional[bytes] = b""
        with suppress(OSError):
            try:
                data = channel.server.recv(min(PIECE_BYTES, channel.room))
            except BlockingIOError:
                return
        if not data:
            self._close(number)
            return
        channel.room -= len(data)
        self._talk.wire.send({"type": "piece", "channel": number}, data)

    def _write(self, number: int) -> None:
        channel = self._channels.get(number)
        if channel is None:
            return
        try:
            sent = channel.server.send(channel.pending)
        except BlockingIOError:
            return
        except OSError:
            self._close(number)
            return
        del channel.pending[:sent]
        if sent and not channel.closing:
            self._talk.send("taken", {"channel": number, "size": sent})
        if channel.closing and not channel.pending:
            self._drop(number)

    def _close(self, number: int) -> None:
        self._drop(number)
        self._talk.send("closed", {"channel": number})

    def _drop(self, number: int) -> None:
        self._channels.pop(number).server.close()
