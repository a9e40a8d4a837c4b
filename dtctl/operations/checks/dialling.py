"""What this machine, which is none of the cluster's hosts, can connect to while the hosts listen."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

LIMIT_S = 1.5
"""A packet that is lost is sent again after 1 s."""
_AT_ONCE = 32
_LONGEST = 300


@dataclass(frozen=True)
class Door:
    """Where a task's port might be open to others. `live`: a trainer has it, which is asked nothing."""

    host: str
    whose: str
    name: str
    port: int
    live: bool = False


@dataclass(frozen=True)
class Dialled:
    """A door that is open to this machine."""

    door: Door
    address: str
    """Behind its name, from here."""
    seen_from: str
    """The address of this machine that connected."""


def dial(doors: Iterable[Door], nonce: str, limit_s: float = LIMIT_S) -> tuple[Dialled, ...]:
    """Those behind which the right host has answered: the same private address may be another machine from here."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [one for one in pool.map(lambda door: _dialled(door, nonce, limit_s), doors) if one is not None]
    return tuple(sorted(found, key=lambda one: (one.door.host, one.door.port, one.door.name)))


def _dialled(door: Door, nonce: str, limit_s: float) -> Dialled | None:
    try:
        with socket.create_connection((door.name, door.port), limit_s) as connection:
            if door.live or _greets(connection, door.host, nonce):
                return Dialled(door, connection.getpeername()[0], connection.getsockname()[0])
    except (OSError, UnicodeError):
        pass  # closed, as it should be
    return None


def _greets(connection: socket.socket, host: str, nonce: str) -> bool:
    """As dtctl/agent/network/listening.py answers who shows the nonce."""
    connection.sendall(f"{nonce} ask\n".encode())
    text = b""
    while b"\n" not in text and len(text) < _LONGEST:
        piece = connection.recv(_LONGEST)
        if not piece:
            break
        text += piece
    return text.partition(b"\n")[0] == f"dtctl check {host}".encode()
