"""Trainers that start at once: forked from a process that has imported TensorFlow, which takes 11 to 30 s, only once.

They end as a Python of their own does. This file is both ends: a module for tests, and the program that forks.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.waiting import eventually

DEADLINE_S = 120.0
"""For what takes a second or two, on a machine that is busy with other things."""


class Trainee:
    """One trainer of a nursery."""

    def __init__(self, nursery: Nursery, pid: int, log: Path) -> None:
        self.nursery, self.pid, self.log = nursery, pid, log

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        """Not after `wait`, which lets the system give the pid away."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code; -N if signal N ended it."""
        ended = eventually(lambda: self.nursery.ask(poll=self.pid), DEADLINE_S, f"the end of {self.log.stem}")
        return int(ended["code"])


class Nursery:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def start(
        self, script: Path, *words: object, log: Path, directory: Path | None = None, **environment: str
    ) -> Trainee:
        """`directory`: where it works, if not where the tests do."""
        log.touch()
        argv, where = [str(script), *map(str, words)], str(directory or Path.cwd())
        return Trainee(self, self.ask(argv=argv, environment=environment, log=str(log), directory=where)["pid"], log)


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Ends whatever trainers are left."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    # A process that forks had better have one thread.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, __file__],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        yield Nursery(process)  # the end of its input is its end


def _fork_on_request() -> None:
    import tensorflow.compat.v1  # noqa: F401

    with suppress(ImportError):  # not every trainer needs it
        import sklearn.datasets
        import sklearn.model_selection  # noqa: F401

    live: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "argv" in request:
            pid = os.fork()
            if not pid:
                return _become(**request)
            live.add(pid)
            answer = {"pid": pid}
        else:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            live.discard(ended)
            answer = {"code": os.waitstatus_to_exitcode(status)} if ended else {}
        print(json.dumps(answer), flush=True)
    for pid in live:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return None


def _become(argv: list[str], environment: dict[str, str], log: str, directory: str) -> None:
    """As `python SCRIPT WORD...` would be."""
    output = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    os.chdir(directory)
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).parent)
    runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    _fork_on_request()
