"""How fast the network between two hosts is, as a program sees it."""

from __future__ import annotations

import socket
import time

from .listening import READY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional

    from ..records.network.peers import Measured, Peer

_ECHOES = 21
_CHUNK = bytes(262_144)
_LIMIT_S = 10.0


def measure(peers: List[Peer], nonce: str, seconds: float) -> List[Measured]:
    """One after the other, so that none takes the bandwidth of another."""
    return [_one(peer, nonce, seconds) for peer in peers]


def _one(peer: Peer, nonce: str, seconds: float) -> Measured:
    told: Measured = {
        "whose": peer["whose"],
        "host": peer["host"],
        "latency_s": None,
        "sent": None,
        "received": None,
        "problem": "",
    }
    try:
        with _connected(peer["address"], nonce, "echo") as connection:
            told["latency_s"] = _latency(connection)
        with _connected(peer["address"], nonce, "give") as connection:
            told["received"] = _received(connection, seconds)
        with _connected(peer["address"], nonce, "take") as connection:
            told["sent"] = _sent(connection, seconds)
    except (OSError, ValueError) as error:
        told["problem"] = str(error)[:4096]
    return told


def _connected(address: str, nonce: str, what: str) -> socket.socket:
    name, _, port = address.rpartition(":")
    connection = socket.create_connection((name.strip("[]"), int(port)), _LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.sendall(("%s %s\n" % (nonce, what)).encode("ascii"))
        if connection.recv(1) != READY:
            raise OSError("it does not answer")
    except BaseException:
        connection.close()
        raise
    return connection


def _latency(connection: socket.socket) -> Optional[float]:
    took = []
    for _ in range(_ECHOES):
        began = time.perf_counter()
        connection.sendall(b".")
        if not connection.recv(1):
            return None
        took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 2]


def _received(connection: socket.socket, seconds: float) -> float:
    """Counted from the first bytes on, so that the start of the other side does not count."""
    buffer = bytearray(1 << 20)
    connection.recv_into(buffer)
    began, count = time.monotonic(), 0
    while True:
        size = connection.recv_into(buffer)
        count += size
        passed = time.monotonic() - began
        if not size or passed >= seconds:
            return count / max(passed, 1e-6)


def _sent(connection: socket.socket, seconds: float) -> float:
    """What the system takes; its own buffer is filled before the clock starts."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 18)
    connection.sendall(_CHUNK)
    connection.sendall(_CHUNK)
    began, count = time.monotonic(), 0
    while True:
        connection.sendall(_CHUNK)
        count += len(_CHUNK)
        passed = time.monotonic() - began
        if passed >= seconds:
            return count / max(passed, 1e-6)
