"""Ports that behave badly, and free ones."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def free_port(address: str = "127.0.0.1") -> int:
    """A port that nobody listens on just now; connections to it are refused."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@contextmanager
def talking_port(banner: bytes, address: str = "127.0.0.1") -> Iterator[int]:
    """Greets every connection with `words` and closes it."""
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen(64)

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(banner)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield int(listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
