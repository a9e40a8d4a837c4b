"""Sessions over a connection that an `ssh` of this machine keeps (OpenSSH's PROTOCOL.mux), without a process each."""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path

from dtctl.transport.local import STDERR_BYTES
from dtctl.transport.stream import RemoteExit

VERSION = 4
HELLO, NEW_SESSION, OPEN_FORWARD = 0x00000001, 0x10000002, 0x10000006
DONE, SESSION_OPENED, EXIT_MESSAGE = 0x80000001, 0x80000006, 0x80000004
LOCAL, UNIX_SOCKET = 1, 0xFFFFFFFE
NO_ESCAPE = 0xFFFFFFFF
MOST_BYTES = 1 << 16
HELLO_S = 5.0
"""The timeout of the handshake, which is with a process of this machine."""
_LEAST_S = 0.001
"""0 would mean not to wait at all, which is another error."""
EXIT_S = 1.0
"""How long the exit code may take to follow the end of the output."""


def is_alive(path: Path) -> bool:
    try:
        Control(path).close()
    except OSError:
        return False
    return True


class Control:
    """A connection to an `ssh` that keeps one. Raises OSError, usually because there is none."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._wait_at_most(HELLO_S)
        try:
            self._socket.connect(str(path))
            kind, fields = self._receive()
            if kind != HELLO or fields[:4] != _number(VERSION):
                raise OSError("it speaks another version of the protocol")
            self._send(HELLO, VERSION)
        except BaseException:
            self.close()
            raise

    def run(self, command: str, timeout_s: float, *, agent: bool = False) -> KeptProcess:
        """Runs a command. Raises OSError, usually because the host opens no session in time, or refuses to.

        `agent`: with this machine's ssh-agent, if the connection was made for that.
        """
        connection, theirs = socket.socketpair()
        stderr, their_stderr = os.pipe()
        try:
            # Without a terminal, X11 and a subsystem.
            self._send(NEW_SESSION, 0, b"", 0, 0, int(agent), 0, NO_ESCAPE, b"", command.encode())
            for descriptor in (theirs.fileno(), theirs.fileno(), their_stderr):
                socket.send_fds(self._socket, [b"\0"], [descriptor])
            self._wait_at_most(timeout_s)
            if self._receive()[0] != SESSION_OPENED:
                raise OSError("it does not open more sessions")
        except BaseException:
            connection.close()
            os.close(stderr)
            raise
        finally:
            theirs.close()
            os.close(their_stderr)
        return KeptProcess(self, connection, stderr)

    def forward(self, here: Path, there: str) -> None:
        """Makes the socket `here`, whose connections lead to the host's socket `there`. Raises OSError."""
        self._wait_at_most(HELLO_S)
        self._send(OPEN_FORWARD, 0, LOCAL, os.fsencode(here), UNIX_SOCKET, os.fsencode(there), UNIX_SOCKET)
        if self._receive()[0] != DONE:
            raise OSError("it does not forward a socket")

    def exit_code(self, timeout_s: float) -> int:
        """The exit code of the command. Raises OSError."""
        self._wait_at_most(timeout_s)
        while True:
            kind, fields = self._receive()
            if kind == EXIT_MESSAGE and len(fields) == 8:
                return int(struct.unpack(">II", fields)[1])

    def close(self) -> None:
        self._socket.close()

    def _wait_at_most(self, timeout_s: float) -> None:
        """Limits the time for all that arrives from now on: a peer that sends single bytes has no more time than a
        silent one.
        """
        self._until = time.monotonic() + timeout_s
        self._socket.settimeout(timeout_s)

    def _send(self, *fields: int | bytes) -> None:
        body = b"".join(_number(one) if isinstance(one, int) else _number(len(one)) + one for one in fields)
        self._socket.sendall(_number(len(body)) + body)

    def _receive(self) -> tuple[int, bytes]:
        size, kind = struct.unpack(">II", self._read(8))
        if not 4 <= size <= MOST_BYTES:
            raise OSError("it speaks another protocol")
        return kind, self._read(size - 4)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._socket.settimeout(max(self._until - time.monotonic(), _LEAST_S))
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the connection to the host has ended")
            data += piece
        return data


def _number(value: int) -> bytes:
    return struct.pack(">I", value)


class KeptProcess:
    """A `Process` (see local.py) on the host."""

    def __init__(self, control: Control, connection: socket.socket, stderr: int) -> None:
        self.connection = connection
        self._control = control
        self.stderr = stderr
        self._tail = b""
        os.set_blocking(stderr, False)

    def drain(self) -> bool:
        with suppress(BlockingIOError):
            while piece := os.read(self.stderr, MOST_BYTES):
                self._tail = (self._tail + piece)[-STDERR_BYTES:]
            return False
        return True

    def wait(self, patience_s: float) -> RemoteExit:
        code, reason = None, ""
        try:
            code = self._control.exit_code(min(patience_s, EXIT_S))
        except TimeoutError:
            reason = "its end was not waited for"
        except OSError as error:
            reason = str(error)
        self.drain()
        return RemoteExit(code, stderr=self._tail, reason=reason)

    def close(self) -> None:
        self._control.close()
        self.connection.close()
        os.close(self.stderr)
