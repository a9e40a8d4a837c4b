"""A local program to talk to over a socket, which unlike a pipe can be waited for and shut from any thread."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

STDERR_BYTES = 4096


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
