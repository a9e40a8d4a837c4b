"""Listens on the ports of this host's tasks during a check.

A client must send the check's nonce first: others get no answer, and no program runs for them.

    NONCE ask     -> GREETING and the host's name, and padding that does not fit into one packet
    NONCE echo    -> READY; then each byte is sent back
    NONCE give    -> READY; then bytes without an end, for at most MOST_S
    NONCE take    -> READY; then everything is read
"""

from __future__ import annotations

import errno
import hmac
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress

from ...host import ports
from ...records.kinds import made
from .records import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Container, Dict, List, Mapping

    from ...records.spec import Spec
    from .records import ListenRequest

PADDING = b"." * 16_384
"""More than one packet of any network (usually at most 9,000 bytes)."""

GREETING = b"dtctl check "
READY = b"+"

MOST_GUESTS = 400
MOST_MEASURING = 8
MOST_S = 10.0
_GREETING_S = 5.0
_LONGEST_LINE = 64
CHUNK = bytes(262_144)
SENT_AHEAD = len(CHUNK)
"""The size of the system's own buffer, in both directions: otherwise one direction would seem faster."""
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: the connection is reset, and nothing of it is kept."""


class Guest:
    """A connection that was accepted."""

    def __init__(self, connection: socket.socket, since: float) -> None:
        self.connection = connection
        self.since = since
        self.buffer = b""
        self.answer = b""
        self.answered = False

    def close(self) -> None:
        """Closes the connection at once, without the minute in which a server without SO_REUSEADDR lacks the port."""
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.connection.close()


class Listener:
    """Answers from a thread of its own until it is closed."""

    def __init__(self, host: str, nonce: str) -> None:
        self._greeting = GREETING + host.encode("ascii", "replace") + b"\n"
        self._nonce = nonce.encode("ascii")
        self._selector = selectors.DefaultSelector()
        self._guests: Dict[Guest, None] = {}
        self._measuring = threading.BoundedSemaphore(MOST_MEASURING)
        self._sockets: List[socket.socket] = []
        self._bell = socket.socketpair()
        self._selector.register(self._bell[0], selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def bind(self, port: int) -> None:
        """Listens on every address, as a trainer's server would.

        Raises OSError if the port is taken. Call it before `start`.
        """
        found = ports.bound(port, dying=True)
        if found is None:
            raise OSError(errno.EADDRINUSE, "the port is taken")
        for one in found:
            one.listen(MOST_GUESTS)
            one.setblocking(False)
            self._sockets.append(one)
            self._selector.register(one, selectors.EVENT_READ)

    def close(self) -> None:
        """The ports are free again when it returns."""
        self._bell[1].send(b".")
        if self._thread.is_alive():
            self._thread.join(MOST_S)
        for guest in self._guests:
            guest.close()
        for one in [*self._sockets, *self._bell]:
            one.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select(1.0):
                if key.fileobj is self._bell[0]:
                    return
                with suppress(OSError):
                    if isinstance(key.data, Guest):
                        self._attend(key.data)
                    else:
                        self._accept(key.fileobj)  # type: ignore[arg-type]
            now = time.monotonic()
            for guest in [guest for guest in self._guests if now - guest.since > _GREETING_S]:
                self._drop(guest)

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        if len(self._guests) >= MOST_GUESTS:
            self._drop(next(iter(self._guests)))
        guest = Guest(connection, time.monotonic())
        self._guests[guest] = None
        self._selector.register(connection, selectors.EVENT_READ, guest)

    def _attend(self, guest: Guest) -> None:
        try:
            if guest.answered:
                if not guest.connection.recv(1):
                    self._drop(guest)
            elif guest.answer:
                self._go_on(guest)
            elif self._has_authenticated(guest):
                self._obey(guest)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(guest)

    def _has_authenticated(self, guest: Guest) -> bool:
        """Whether its line is complete and contains the nonce. A guest that has sent anything else is dropped."""
        piece = guest.connection.recv(_LONGEST_LINE - len(guest.buffer))
        guest.buffer += piece
        if guest.buffer.endswith(b"\n"):
            nonce, _, guest.buffer = guest.buffer[:-1].partition(b" ")
            if hmac.compare_digest(nonce, self._nonce):
                return True
        elif piece and len(guest.buffer) < _LONGEST_LINE:
            return False
        self._drop(guest)
        return False

    def _obey(self, guest: Guest) -> None:
        measure = {b"echo": _echo, b"give": _give, b"take": _take}.get(guest.buffer)
        if measure is not None and self._measuring.acquire(blocking=False):
            self._forget(guest)
            guest.connection.settimeout(MOST_S)
            threading.Thread(target=self._measure, args=(measure, guest.connection), daemon=True).start()
        elif guest.buffer == b"ask":
            # a packet of its own: where the large ones are lost, this one shows who answers
            guest.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            guest.connection.send(self._greeting)  # a new socket has room for it
            guest.answer = PADDING
            self._selector.modify(guest.connection, selectors.EVENT_WRITE, guest)
        else:
            self._drop(guest)

    def _go_on(self, guest: Guest) -> None:
        guest.answer = guest.answer[guest.connection.send(guest.answer) :]
        if not guest.answer:  # the other side closes first: that side's port stays in TIME_WAIT for a minute
            guest.answered = True
            self._selector.modify(guest.connection, selectors.EVENT_READ, guest)

    def _measure(self, measure: Callable[[socket.socket], None], connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(READY)
            measure(connection)
        self._measuring.release()

    def _drop(self, guest: Guest) -> None:
        self._forget(guest)
        guest.close()

    def _forget(self, guest: Guest) -> None:
        if guest in self._guests:
            del self._guests[guest]
            self._selector.unregister(guest.connection)


def bind(
    listener: Listener, requests: List[ListenRequest], live: Container[int], others: Mapping[int, Spec]
) -> List[Bound]:
    """The result for each request; `live` ports are those of the cluster's own run, which is left alone.

    `others`: ports of the user's other live runs -> the spec of the run.
    """
    chosen: List[int] = [request["port"] for request in requests]
    return [_bind(listener, request, live, others, chosen) for request in requests]


def _bind(
    listener: Listener, request: ListenRequest, live: Container[int], others: Mapping[int, Spec], chosen: List[int]
) -> Bound:
    whose, port = request["whose"], request["port"]
    answer = made(Bound, whose=whose, port=port or None, state="bound")
    if port in live:
        sockets = sorted(map(int, ports.listening(port)))[:100]
        return {**answer, "state": "live" if sockets else "idle", "sockets": sockets}
    if port == 0:
        held = ports.hold(chosen)
        if held is None:
            return {**answer, "port": None, "state": "taken", "holder": "no port is free"}
        port = held[0]
        chosen.append(port)
        ports.let_go(held[1])
    try:
        listener.bind(port)
    except OSError:
        holder, tries = ports.holding(port)
        if tries:
            return {**answer, "state": "tried", "holder": holder[:4096]}
        run = others.get(port)
        own = {"run": run["run"], "cluster": run["cluster"]} if run is not None else {}
        return {**answer, "state": "taken", "holder": holder[:4096], **own}  # type: ignore[typeddict-item]
    return {**answer, "port": port}


def _echo(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        piece = connection.recv(64)
        if not piece:
            return
        connection.sendall(piece)


def _give(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
    deadline = time.monotonic() + MOST_S
    while time.monotonic() < deadline:
        connection.send(CHUNK)


def _take(connection: socket.socket) -> None:
    deadline = time.monotonic() + MOST_S
    buffer = bytearray(1 << 20)
    while time.monotonic() < deadline:
        if not connection.recv_into(buffer):
            return
