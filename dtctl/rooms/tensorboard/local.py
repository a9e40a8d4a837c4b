"""A TensorBoard on this machine, which shows a directory and is killed with this process in any case."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from dtctl.agent.rooms.tensorboard.records import LIFELINE, PROBE
from dtctl.errors import DtctlError

BEGIN_LIMIT_S = 120.0
PROBE_LIMIT_S = 60.0
RESPONSE_S = 120.0
"""The longest silence of a connection."""
END_LIMIT_S = 5.0
_OUTPUT_BYTES = 4096
_LOOK_S = 0.1


def find_python() -> str | None:
    """A Python of this machine that has TensorBoard: dtctl's own, the active environment's, or one of the PATH."""
    return next((python for python in dict.fromkeys(_pythons()) if _has(python)), None)


def _pythons() -> Iterator[str]:
    yield sys.executable
    if os.environ.get("VIRTUAL_ENV"):
        yield str(Path(os.environ["VIRTUAL_ENV"]) / "bin" / "python")
    for name in ("python3", "python"):
        if found := shutil.which(name):
            yield found


def _has(python: str) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [python, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=PROBE_LIMIT_S,
            check=False,
        )
        return done.returncode == 0
    return False


class Here(AbstractContextManager["Here"]):
    """The TensorBoard process. A context manager: at its end the process has ended, and its `place` is removed."""

    def __init__(self, python: str, place: Path, shown: Path) -> None:
        """`shown` is in `place`, the directory that is removed."""
        self._place = place
        self._output = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115 (closed at the end)
        words = [*("--logdir", str(shown)), *("--host", "127.0.0.1"), *("--port", "0")]
        self._line, far = socket.socketpair()
        with far:
            self._child = subprocess.Popen(
                [python, "-c", LIFELINE, str(place), *words],
                stdin=far.fileno(),
                stdout=self._output,
                stderr=self._output,
                cwd="/",
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"},
                start_new_session=True,
            )
        self._line.settimeout(_LOOK_S)

    def __exit__(self, *_: object) -> None:
        self._line.close()  # the process ends by itself then
        try:
            self._child.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._output.close()
        shutil.rmtree(self._place, ignore_errors=True)

    def connect(self) -> socket.socket:
        """A connection to this very process. Raises OSError."""
        connection, far = socket.socketpair()
        with far:
            socket.send_fds(self._line, [b"."], [far.fileno()])
        connection.settimeout(RESPONSE_S)
        return connection

    def check(self) -> None:
        """Raises DtctlError if it has ended."""
        code = self._child.poll()
        if code is not None:
            size = os.fstat(self._output.fileno()).st_size
            end = os.pread(self._output.fileno(), _OUTPUT_BYTES, max(0, size - _OUTPUT_BYTES))
            raise DtctlError(
                f"TensorBoard on this machine ended with exit code {code}",
                detail=end.decode("utf-8", "replace"),
            )

    def begin(self) -> None:
        """Returns when it accepts connections. Raises DtctlError."""
        until = time.monotonic() + BEGIN_LIMIT_S
        while True:
            self.check()
            with suppress(TimeoutError):
                if self._line.recv(1):
                    return
            if time.monotonic() > until:
                raise DtctlError(f"TensorBoard on this machine did not start within {BEGIN_LIMIT_S:g} s")
