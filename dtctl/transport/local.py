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
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from dtctl.errors import TransportError
from dtctl.transport import payload
from dtctl.transport.stream import RemoteExit, converse
from dtctl.transport.timeouts import UNOBSERVED, SilenceTimer, Waiting

if TYPE_CHECKING:
    from dtctl.model import Host
    from dtctl.transport.seam import Session, TransportOptions


STDERR_BYTES = 4096
READ_BYTES = 256 * 1024
END_TIMEOUT_S = 10.0
"""How long a session may take, after the end of its input, to undo what is incomplete."""


class Child:
    """A child process; its stdin and stdout are the other end of `connection`. Raises OSError if it cannot be started.

    It has a session of its own: without a terminal it cannot prompt for a password, and Ctrl-C does not reach it.
    """

    stderr = None

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

    def wait(self, patience_s: float) -> RemoteExit:
        """How it ended. It is killed if it does not end in time."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
        self._stderr.seek(max(0, self._stderr.seek(0, os.SEEK_END) - STDERR_BYTES))
        stderr = self._stderr.read()
        return RemoteExit(code, stderr=stderr) if code >= 0 else RemoteExit(None, signal.Signals(-code).name, stderr)

    def close(self) -> None:
        """Frees its descriptors. To be called after `wait`."""
        self.connection.close()
        self._stderr.close()

    def drain(self) -> bool:
        return False


class Process(Protocol):
    """The process that runs the agent, here or beyond a kept connection, with one socket for its stdin and stdout."""

    connection: socket.socket

    @property
    def stderr(self) -> int | None:
        """The descriptor to drain while waiting for output; None if stderr goes to a file."""
        ...

    def drain(self) -> bool:
        """Whether there may be more on stderr later."""
        ...

    def wait(self, patience_s: float) -> RemoteExit:
        """How it ended, with the end of its stderr. Gives up if it does not end in time."""
        ...

    def close(self) -> None: ...


class ChildStream:
    """A process's stdin and stdout. `close` waits for its end, at most `closing_s` if every write was answered."""

    def __init__(self, child: Process, closing_s: float = END_TIMEOUT_S) -> None:
        self._child = child
        self._closing_s = closing_s
        self._unanswered = False
        """Whether something was written after the last read, and may not have arrived yet."""
        self._connection = child.connection
        self._readable = select.poll()
        self._readable.register(self._connection, select.POLLIN)
        if child.stderr is not None:
            self._readable.register(child.stderr, select.POLLIN)
        self._reading = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        self._ending: RemoteExit | None = None

    def read(self, timeout_s: float | None) -> bytes:
        with self._reading:
            if self._closed:
                return b""
            self._wait_for_output(None if timeout_s is None else time.monotonic() + timeout_s)
            data = b""
            with suppress(ConnectionError):
                data = self._connection.recv(READ_BYTES)
            self._unanswered = self._unanswered and not data
            return data

    def _wait_for_output(self, deadline: float | None) -> None:
        """Waits until output can be read. Raises TimeoutError."""
        while True:
            remaining_ms = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            found = {descriptor for descriptor, _ in self._readable.poll(remaining_ms)}
            if self._child.stderr in found and not self._child.drain():
                self._readable.unregister(self._child.stderr)
            if self._connection.fileno() in found:
                return
            if not found:
                raise TimeoutError

    def write(self, data: bytes, silence: SilenceTimer) -> None:
        writable = select.poll()
        try:
            writable.register(self._connection, select.POLLOUT)
        except ValueError as error:
            raise BrokenPipeError(errno.EPIPE, "it was closed here") from error
        self._unanswered = True
        rest = memoryview(data)
        while rest:
            if writable.poll(silence.wait_s * 1000):
                with suppress(BlockingIOError):
                    rest = rest[self._connection.send(rest, socket.MSG_DONTWAIT) :]
                    silence.broken()
            else:
                silence.check()

    def ending(self) -> RemoteExit:
        with self._closing:
            return self._wait(END_TIMEOUT_S)

    def close(self) -> None:
        with self._closing:
            if self._closed:
                return
            self._closed = True
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)  # wakes threads that read or write
            self._wait(END_TIMEOUT_S if self._unanswered else self._closing_s)
            with self._reading:
                self._child.close()

    def _wait(self, patience_s: float) -> RemoteExit:
        if self._ending is None:
            self._ending = self._child.wait(patience_s)
        return self._ending


class LocalTransport:
    """Runs agents below `root` (None: ~/.dtctl) with the interpreter `python`, and with these variables besides."""

    def __init__(
        self,
        root: Path | None = None,
        python: str = sys.executable,
        waiting: Waiting = UNOBSERVED,
        environ: Mapping[str, str] = {},
    ) -> None:
        self._python = python
        self._waiting = waiting
        self._environ = {**environ, **({"DTCTL_ROOT": str(root)} if root else {})}

    @classmethod
    def of(cls, means: TransportOptions) -> LocalTransport:
        return cls(means.local_root, waiting=means.waiting)

    def open(self, host: Host) -> Session:
        if sys.platform != "linux":
            raise TransportError(
                f"{host.name} is this machine, and hosts of tasks are Linux machines",
                hint="give the hosts SSH addresses; dtctl itself runs here, and reaches them from here",
            )
        environment = {**os.environ, **self._environ} if self._environ else None
        try:
            child = Child([self._python, *shlex.split(payload.LOADER)[1:]], environment)
        except OSError as error:
            raise TransportError(f"cannot start the agent of {host.name}: {self._python}: {error.strerror}") from error
        return converse(host, ChildStream(child), self._waiting)
