"""Ports that a run is going to listen on, made known on this machine before anybody listens there.

Each is a Unix socket with an abstract name (unix(7)): /proc/net/unix shows it to everybody who shares these ports, it
leaves no file, and it ends with the process that holds it.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List

NAME = "dtctl/port/%d"


def hold(ports: Iterable[int]) -> List[socket.socket]:
    """To be kept as long as the ports are wanted. Nothing depends on it but the choice of ports by others."""
    held = []
    for port in ports:
        with suppress(OSError):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            held.append(claim)
            claim.bind(("\0" + NAME + "/%d") % (port, os.getpid()))
    return held
