"""The agent on this machine, without SSH: the same program and the same bytes."""

from __future__ import annotations

import errno
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from dtctl.errors import TransportError
from dtctl.transport import payload
from dtctl.transport.stream import RemoteExit, converse
from dtctl.transport.timeouts import Waiting, unobserved

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.seam import Session, TransportOptions
    from dtctl.transport.timeouts import SilenceTimer


STDERR_BYTES = 4096
READ_BYTES = 256 * 1024
END_TIMEOUT_S = 10.0
"""For the session to undo what is not complete after the end of its input."""


class Child:
    """Its standard input and output are the other end of `connection`. Raises OSError if it cannot be started.

    It has a session of its own: without a terminal it can ask for no password, and Ctrl-C is not for it.
    """

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.connection, theirs = socket.socketpair()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `close`)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr.fileno(),
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            self.connection.close()
            self._stderr.close()
            raise
        finally:
            theirs.close()

    def wait(self, patience_s: float) -> int:
        """Its exit code, negative for a signal; it is killed if it does not end in time."""
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()

    def stderr(self) -> bytes:
        """The end of its stderr."""
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - STDERR_BYTES))
        return self._stderr.read()

    def close(self) -> None:
        """After `wait`."""
        self.connection.close()
        self._stderr.close()


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

    def write(self, data: bytes, silence: SilenceTimer) -> None:
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
