"""A TLS connection on a socket that never blocks."""

from __future__ import annotations

import os
import socket

from .lines import Lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .tls import Channel

QUEUE_LIMIT = 16 << 20
"""Bytes that wait for an end that does not read."""

_PIECE = 65536
_DISCARDS = 64


class TlsStream:
    """Methods raise Lost when the connection is of no more use; it is still to be closed then.

    `opening` is sent before all else, as it is.
    """

    def __init__(self, connection: socket.socket, channel: Channel, opening: bytes = b"") -> None:
        self._socket = connection
        self._channel = channel
        self._queue = bytearray(opening)
        self._finishing = False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def host(self) -> str:
        """The host that the other end has proved to be."""
        return self._channel.host

    @property
    def is_waiting(self) -> bool:
        """Something is still to be pushed when the socket can be written to."""
        return bool(self._queue)

    def pull(self) -> bool:
        """Takes in some of what has arrived; False when there is nothing."""
        try:
            received = self._socket.recv(_PIECE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise Lost(plain(error)) from None
        if not received:
            raise Lost("the other end has closed the connection")
        self._channel.feed(received)
        return True

    def discard(self) -> None:
        """Empties the socket: one that is closed with something unread loses what it still had to send."""
        try:
            for _ in range(_DISCARDS):
                if not self._socket.recv(_PIECE):
                    raise Lost("the other end has closed the connection")
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise Lost(plain(error)) from None

    def advance(self) -> bool:
        """Continues the handshake; True when it is done and `host` is proved."""
        try:
            return self._channel.advance()
        finally:
            self.push()  # after a failure: an alert

    def read(self) -> bytes:
        """The plain bytes in what has been pulled."""
        return self._channel.read()

    def write(self, data: bytes) -> None:
        self._channel.write(data)
        self.push()

    def push(self) -> None:
        """Sends what the socket takes now."""
        self._queue += self._channel.to_send()
        try:
            while self._queue:
                del self._queue[: self._socket.send(self._queue)]
            if self._finishing:
                self._socket.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            if len(self._queue) > QUEUE_LIMIT:
                raise Lost("it does not read what it is sent") from None
        except OSError as error:
            raise Lost(plain(error)) from None

    def finish(self) -> None:
        """Ends the writing. What was written is still delivered, if the other end's last words are read too."""
        self._finishing = True
        self.push()

    def close(self) -> None:
        self._socket.close()


def plain(error: OSError) -> str:
    """An error of the system, without its number."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
