"""The agent on this machine, without SSH: the same program and the same bytes."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.errors import TransportError
from dtctl.transport import payload
from dtctl.transport.child import Child, ChildStream
from dtctl.transport.stream import converse
from dtctl.transport.timeouts import Waiting, unobserved

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.means import TransportOptions
    from dtctl.transport.seam import Session


class LocalTransport:
    """Runs agents below `root` (None: ~/.dtctl) with the interpreter `python`."""

    def __init__(self, root: Path | None = None, python: str = sys.executable, waiting: Waiting = unobserved) -> None:
        self._root = root
        self._python = python
        self._waiting = waiting

    @classmethod
    def of(cls, means: TransportOptions) -> LocalTransport:
        return cls(means.local_root, waiting=means.waiting)

    def open(self, host: Host) -> Session:
        if sys.platform != "linux":
            raise TransportError(
                f"{host.name} is this machine, and hosts of tasks are Linux machines",
                hint="give the hosts SSH addresses; dtctl itself runs here, and reaches them from here",
            )
        environment = {**os.environ, "DTCTL_ROOT": str(self._root)} if self._root else None
        try:
            child = Child([self._python, *shlex.split(payload.LOADER)[1:]], environment)
        except OSError as error:
            raise TransportError(f"cannot start the agent of {host.name}: {self._python}: {error.strerror}") from error
        return converse(host, ChildStream(child), self._waiting)
