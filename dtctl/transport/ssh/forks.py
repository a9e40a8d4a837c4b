"""Sessions started by a fork server on the host (dtctl/agent/requests/forkserver.py), over a kept connection.

A session that logs in leaves the server behind and reports its socket, and the `ssh` that keeps the connection forwards
a socket of this machine to it. If that is forbidden, or the server has ended, sessions log in as before.
"""

from __future__ import annotations

import hashlib
import socket
from contextlib import suppress
from pathlib import Path

from dtctl.transport import payload
from dtctl.transport.ssh.control import Control
from dtctl.transport.stream import RemoteExit


class ForkServer:
    """The fork server of one kept connection, whose control socket is `control`, and of this version of dtctl."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._here = control.with_name(f"{control.name}-{payload.agent_program().sha256[:8]}")

    def opening(self, keep_s: float) -> bytes:
        """The opening of a session by which the host starts the server unless it runs."""
        try:
            login = self._control.stat()
        except OSError:  # the login has ended
            return payload.opening()
        known = f"{self._here.name} {login.st_ino} {login.st_mtime_ns}"
        return payload.opening(f"{hashlib.sha256(known.encode()).hexdigest()[:16]} {keep_s:.0f}")

    def forward(self, there: str) -> None:
        """Forwards the server's socket, once its path is known. Empty: there is none, or it is in use already."""
        if there and not self._here.exists():
            with suppress(OSError, ValueError):  # ValueError: not a path
                control = Control(self._control)
                try:
                    control.forward(self._here, there)
                finally:
                    control.close()

    def session(self, timeout_s: float) -> ForkedProcess:
        """A session. Raises OSError if there is no server, and TimeoutError if nothing answers over the connection."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(self._here))
            if not connection.recv(1, socket.MSG_PEEK):
                raise FileNotFoundError("the host has no such server now")
        except (ConnectionRefusedError, TimeoutError):
            self._here.unlink(missing_ok=True)  # of an ended `ssh`, or of a dead connection
            connection.close()
            raise
        except BaseException:
            connection.close()
            raise
        return ForkedProcess(connection)


class ForkedProcess:
    """A `Process` (see local.py) on the host. Its exit is not reported."""

    stderr = None

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def drain(self) -> bool:
        return False

    def wait(self, patience_s: float) -> RemoteExit:
        return RemoteExit()

    def close(self) -> None:
        self.connection.close()
