"""The agent on this machine, without SSH: the same program and the same bytes."""

from __future__ import annotations

import errno
import os
import select
import shlex
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from dtctl.errors import TransportError
from dtctl.model import Host
from dtctl.transport import payload
from dtctl.transport.child import Child
from dtctl.transport.seam import Session
from dtctl.transport.silence import Silence, Waiting, untold
from dtctl.transport.stream import RemoteExit, StreamSession

READ_BYTES = 256 * 1024
END_TIMEOUT_S = 10.0
"""How long the session may take, after the end of its input, to undo what is incomplete."""


class LocalTransport:
    """Runs agents below `root` (None: ~/.dtctl) with the interpreter `python`."""

    def __init__(self, root: Path | None = None, python: str = sys.executable, waiting: Waiting = untold) -> None:
        self._root = root
        self._python = python
        self._waiting = waiting

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
        session = StreamSession(host, ChildStream(child), self._waiting)
        try:
            session.greet(payload.opening())
        except BaseException:
            session.close()
            raise
        return session


class ChildStream:
    """A child's standard input and output. `close` waits for its end."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._connection = child.connection
        self._reading = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        self._ending: RemoteExit | None = None

    def read(self, timeout_s: float | None) -> bytes:
        with self._reading:
            if self._closed:
                return b""
            readable = select.poll()
            readable.register(self._connection, select.POLLIN)
            if not readable.poll(None if timeout_s is None else timeout_s * 1000):
                raise TimeoutError
            with suppress(ConnectionError):
                return self._connection.recv(READ_BYTES)
            return b""

    def write(self, data: bytes, silence: Silence) -> None:
        writable = select.poll()
        try:
            writable.register(self._connection, select.POLLOUT)
        except ValueError as error:
            raise BrokenPipeError(errno.EPIPE, "it was closed here") from error
        rest = memoryview(data)
        while rest:
            if writable.poll(silence.wait_s * 1000):
                with suppress(BlockingIOError):
                    rest = rest[self._connection.send(rest, socket.MSG_DONTWAIT) :]
                    silence.broken()
            else:
                silence.look()

    def ending(self) -> RemoteExit:
        with self._closing:
            return self._wait()

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # wakes whoever reads or writes
            self._wait()
            with self._reading:
                self._child.close()

    def _wait(self) -> RemoteExit:
        if self._ending is None:
            code = self._child.wait(END_TIMEOUT_S)
            name = signal.Signals(-code).name if code < 0 else ""
            self._ending = RemoteExit(None if name else code, name, self._child.stderr())
        return self._ending
