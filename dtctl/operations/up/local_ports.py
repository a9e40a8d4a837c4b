"""Ports of this machine that a run of it may have: several may start at the same time, and not listen for a while."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

_CLAIM = "dtctl/port/{}"
"""As dtctl/agent/host/claims.py names them."""

_CHOOSING = "\0dtctl/choosing/{}"
"""Held by the `up` that has chosen the port, until its agent has claimed it."""


class LocalPorts:
    """What is found free is kept from others who look for free ports, until this process ends."""

    def __init__(self, table: Path = Path("/proc/net/unix")) -> None:
        self._table = table
        self._chosen: dict[int, int] = {}
        """Port -> the descriptor that keeps it."""

    def is_free(self, port: int) -> bool:
        if port in self._chosen:
            return True
        choice = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        if self._chooses(choice, port) and _binds(port) and not self._is_claimed(port):
            self._chosen[port] = choice.detach()
            return True
        choice.close()
        return False

    def give_back(self) -> None:
        for descriptor in self._chosen.values():
            os.close(descriptor)
        self._chosen.clear()

    def _chooses(self, choice: socket.socket, port: int) -> bool:
        """False for a port that another dtctl of this machine has just chosen."""
        try:
            choice.bind(_CHOOSING.format(port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE  # without such names there is nothing to be asked
        return True

    def _is_claimed(self, port: int) -> bool:
        """By a run whose trainers need a while before they listen."""
        try:
            names = [line.rpartition("@")[2] for line in self._table.read_text(errors="replace").splitlines()]
        except OSError:
            return False
        return any(name.startswith(_CLAIM.format(port) + "/") for name in names)


def _binds(port: int) -> bool:
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True
