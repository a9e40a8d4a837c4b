"""An agent's end of its link to the coordinator: redialled without limit.

Import it only where a link is created: it imports ssl.
"""

from __future__ import annotations

import _thread
import errno
import os
import select
import socket

from ..records.messages import FROM_COORDINATOR
from .peer import Peer, Retry
from .tls import NONCE_BYTES, Channel, Identity, Lost, TlsStream, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List, Mapping, Optional, Tuple

    from .peer import FromDialer

    Address = Tuple[int, Tuple[Any, ...]]


DIAL_S = 10.0
"""The limit from the look-up of the name to the end of the handshake."""

_LOOK_UP_S = 0.1
"""The interval between checks whether a name is resolved."""


class Dialer:
    """`address` is HOST:PORT, `host` the one that has to be there. Raises OSError when `identity` is not usable.

    Call `step` when one of `readers` or `writers` is ready, or it is past `due`. `random` gives floats from 0 to 1.
    """

    def __init__(self, address: str, host: str, identity: Identity, now: float, random: Callable[[], float]) -> None:
        self._host = host
        self._identity = identity
        self._context = identity.context(server=False)
        self._names = Names(address)
        self._retry = Retry(random)
        self._now = self._due = now
        self._looks_up = False
        self._connecting: Optional[Tuple[socket.socket, Tuple[Any, ...]]] = None
        self._welcoming: Optional[socket.socket] = None
        """Connected; the nonce is awaited."""
        self._nonce = b""
        self._stream: Optional[TlsStream] = None
        self._peer: Optional[Peer] = None
        self._broken: Optional[str] = None

    @property
    def connected(self) -> bool:
        return self._peer is not None

    def readers(self) -> List[int]:
        reader = self._stream or self._welcoming
        return [reader.fileno()] if reader else []

    def writers(self) -> List[int]:
        if self._connecting:
            return [self._connecting[0].fileno()]
        return [self._stream.fileno()] if self._stream and self._stream.is_waiting else []

    def register(self, waiting: select.poll) -> None:
        for descriptor in self.readers():
            waiting.register(descriptor, select.POLLIN)
        for descriptor in self.writers():
            waiting.register(descriptor, select.POLLIN | select.POLLOUT)

    def due(self) -> Optional[float]:
        """When to call `step` next, on the monotonic clock."""
        if self._broken is not None:
            return self._now
        if self._peer is not None:
            return self._peer.due()
        return min(self._due, self._now + _LOOK_UP_S) if self._looks_up else self._due

    def step(self, now: float) -> List[FromDialer]:
        """Received items: `connected`, the coordinator's messages, then `gone`, and so on.

        connected: time to send a hello. gone: reason, last_received (on the monotonic clock).
        """
        self._now = now
        received: List[FromDialer] = []
        try:
            if self._broken is not None:
                raise Lost(self._broken)
            if self._peer is not None:
                self._converse(self._peer, received)
            else:
                self._dial(received)
        except Lost as lost:
            self._lose(str(lost), received)
        except OSError as error:
            self._lose(plain(error), received)
        return received

    def send(self, message: Mapping[str, object]) -> None:
        """Sends a message; does nothing without a connection."""
        if self._peer is not None and self._broken is None:
            try:
                self._peer.send(message, self._now)
            except Lost as lost:
                self._broken = str(lost)

    def close(self) -> None:
        """Closes the connection. The last messages are still delivered, as far as the socket's buffer contains them."""
        if self._peer is not None:
            try:
                self._peer.stream.finish()
                self._peer.stream.discard()
            except Lost:
                pass
        self._hang_up()

    def _converse(self, peer: Peer, received: List[FromDialer]) -> None:
        peer.stream.push()
        self._take(peer.receive(self._now), received)
        peer.keep(self._now)

    def _take(self, messages: List[FromDialer], received: List[FromDialer]) -> None:
        for message in messages:
            received.append(message)
            if message["type"] == "refused":
                raise Lost("the coordinator refuses this agent: %s" % message["text"])
            self._retry.reset()

    def _dial(self, received: List[FromDialer]) -> None:
        """Continues to connect as far as possible: each part begins when the one before it has finished."""
        if not (self._looks_up or self._connecting or self._welcoming or self._stream):
            if self._now < self._due:
                return
            self._due = self._now + DIAL_S
            self._looks_up = True
            self._names.resolve()
        elif self._now >= self._due:
            raise Lost("no answer within %d s" % DIAL_S)
        if self._looks_up:
            self._begin_to_connect()
        if self._connecting:
            self._go_on_connecting(*self._connecting)
        if self._welcoming:
            self._prove_token(self._welcoming)
        if self._stream:
            self._shake_hands(self._stream, received)

    def _begin_to_connect(self) -> None:
        place = self._names.next()
        if place is None:
            return
        self._looks_up = False
        family, address = place
        connection = socket.socket(family, socket.SOCK_STREAM)
        self._connecting = connection, address
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _go_on_connecting(self, connection: socket.socket, address: Tuple[Any, ...]) -> None:
        outcome = connection.connect_ex(address)
        if outcome in (errno.EINPROGRESS, errno.EALREADY, errno.EINTR):
            return
        if outcome not in (0, errno.EISCONN):
            raise OSError(outcome, os.strerror(outcome))
        self._connecting, self._welcoming, self._nonce = None, connection, b""

    def _prove_token(self, connection: socket.socket) -> None:
        try:
            piece = connection.recv(NONCE_BYTES - len(self._nonce))
        except (BlockingIOError, InterruptedError):
            return
        if not piece:
            raise Lost("the other end has closed the connection")
        self._nonce += piece
        if len(self._nonce) == NONCE_BYTES:
            channel = Channel(self._identity, self._context, server=False, wanted=self._host)
            self._stream = TlsStream(connection, channel, self._identity.token_proof(self._nonce))
            self._welcoming = None

    def _shake_hands(self, stream: TlsStream, received: List[FromDialer]) -> None:
        stream.pull()
        if not stream.advance():
            return
        self._peer = Peer(stream, FROM_COORDINATOR, self._now)
        received.append({"type": "connected"})
        self._take(self._peer.understand(self._now), received)

    def _lose(self, reason: str, received: List[FromDialer]) -> None:
        """Starts over after a while."""
        if self._peer is not None:
            received.append({"type": "gone", "reason": reason, "last_received": self._peer.last_received})
        self._hang_up()
        self._due = self._now + self._retry.next_s(self._now)

    def _hang_up(self) -> None:
        if self._connecting:
            self._connecting[0].close()
        for held in (self._welcoming, self._stream):
            if held:
                held.close()
        self._looks_up = False
        self._connecting = self._welcoming = self._stream = self._peer = self._broken = None


class Names:
    """Resolves one HOST:PORT or [HOST]:PORT. A numeric host needs no look-up.

    A name is resolved in a thread, since the system may take minutes to answer. During that, and if it fails, the last
    answer is used.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._asking = False
        self._places: List[Address] = []
        self._error: Optional[OSError] = None
        self._turn = 0
        try:
            self._places = self._look_up(socket.AI_NUMERICHOST)
            self._is_numeric = True
        except socket.gaierror:
            self._is_numeric = False

    def resolve(self) -> None:
        """Starts a look-up, unless one is running."""
        if not self._is_numeric and not self._asking:
            self._asking = True
            self._error = None
            try:
                _thread.start_new_thread(self._answer, ())
            except RuntimeError as error:  # the user's limit of threads is reached
                self._asking, self._error = False, OSError(str(error))

    def next(self) -> Optional[Address]:
        """Family and address, each of several in turn; None while there is no answer. Raises OSError."""
        if not self._places:
            if self._error is not None:
                raise self._error
            return None
        self._turn += 1
        return self._places[(self._turn - 1) % len(self._places)]

    def _answer(self) -> None:
        try:
            self._places = self._look_up(0)
        except OSError as error:
            self._error = OSError("%s: %s" % (self._host, error.strerror))
        except UnicodeError:
            self._error = OSError("%s: not a name" % self._host)
        finally:
            self._asking = False

    def _look_up(self, flags: int) -> List[Address]:
        # bytes: a string would import what encodes names that are not ASCII
        host = self._host.encode("ascii") if self._host.isascii() else self._host
        found = socket.getaddrinfo(host, self._port, 0, socket.SOCK_STREAM, 0, flags)
        return [(family, address) for family, _, _, _, address in found]
