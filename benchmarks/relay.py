"""A line to far hosts: what goes through arrives later, in each direction, and as fast as before."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 256 * 1024


class Relay:
    """Listens on all addresses at `port`, and carries each connection to the same address at `to_port`.

    A connection itself is made at once, so what connecting takes (one round trip for TCP) is not in it.
    """

    def __init__(self, to_port: int, delay_s: float) -> None:
        self.delay_s = delay_s
        """Of each direction; what is changed counts for what comes next."""
        self._to_port = to_port
        self._listener = socket.create_server(("0.0.0.0", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._open: set[socket.socket] = set()
        """Ends of connections; a connection leaves when both directions have ended."""
        self._ends, self._ended = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._ended, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.close()
        self._thread.join()
        for one in (self._listener, self._ended, *self._open):
            one.close()
        self._selector.close()

    def _carry(self) -> None:
        while True:
            wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait_s):
                if key.data is None:
                    return
                key.data()
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[-1]()

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection((near.getsockname()[0], self._to_port))
        for one, other in ((near, far), (far, near)):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(one)
            self._selector.register(one, selectors.EVENT_READ, lambda one=one, other=other: self._read(one, other))

    def _read(self, one: socket.socket, other: socket.socket) -> None:
        try:
            data = one.recv(PIECE_BYTES)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(one)
        due = time.monotonic() + self.delay_s
        heapq.heappush(self._due, (due, next(self._order), lambda: self._write(one, other, data)))

    def _write(self, one: socket.socket, other: socket.socket, data: bytes) -> None:
        with suppress(OSError):  # who has gone away needs nothing more
            if data:
                other.sendall(data)
            else:
                other.shutdown(socket.SHUT_WR)
        if not data:
            self._open.discard(one)
            if other not in self._open:
                one.close()
                other.close()


@contextmanager
def relay(to_port: int, delay_s: float) -> Iterator[Relay]:
    line = Relay(to_port, delay_s)
    line.start()
    try:
        yield line
    finally:
        line.stop()
