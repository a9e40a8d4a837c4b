"""Ports that a run is going to listen on, made known on this machine before anybody listens there.

Each is a Unix socket with an abstract name (unix(7)): /proc/net/unix shows it to everybody who shares these ports, it
leaves no file, and it ends with the process that holds it.
"""

from __future__ import annotations

import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List

NAME = "dtctl/port/%d"


def hold(ports: Iterable[int]) -> List[int]:
    """Descriptors that stay open as long as the process does. Nothing depends on them but the choice of ports."""
    held = []
    for port in ports:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if _binds(claim, port):
            held.append(claim.detach())
        else:
            claim.close()
    return held


def _binds(claim: socket.socket, port: int) -> bool:
    try:
        claim.bind(("\0" + NAME + "/%d") % (port, os.getpid()))
    except OSError:
        return False
    return True
