"""The first trainer as a user starts it without dtctl: one process per task, with the same lists of addresses.

Each is forked from a nursery: of a start of the trainer only the import of TensorFlow is not its own.
"""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dtctl.operations.init import write_template
from tests.training.nursery import Nursery, Trainee


class TaskByHand:
    """One task: its process, its own working directory, and what it has printed."""

    def __init__(self, trainee: Trainee, directory: Path) -> None:
        self.directory = directory
        self._trainee = trainee
        self._code: int | None = None

    def printed(self) -> str:
        return self._trainee.printed()

    def find(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.printed(), re.MULTILINE)

    def ask_to_stop(self) -> None:
        self._trainee.send(signal.SIGTERM)

    def wait(self) -> int:
        if self._code is None:
            self._code = self._trainee.wait()
        return self._code

    def end(self) -> None:
        if self._code is None:
            self._trainee.send(signal.SIGKILL)
            self.wait()


@contextmanager
def cluster_by_hand(
    trainers: Nursery, root: Path, *flags: str, ps: int, workers: int
) -> Iterator[Mapping[str, TaskByHand]]:
    """Starts every task below `root/TASK`, with the code in `root/code`; ends whatever still runs at the end."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(ps + workers)]
    hosts = [f"--ps_hosts={','.join(ports[:ps])}", f"--worker_hosts={','.join(ports[ps:])}"]
    places = [("ps", index) for index in range(ps)] + [("worker", index) for index in range(workers)]
    code = root / "code"
    if not code.exists():
        write_template("ps-async", code, "digits")
    tasks: dict[str, TaskByHand] = {}
    with ExitStack() as stack:
        for job, index in places:
            place = [f"--job_name={job}", f"--task_index={index}"]
            own = root / f"{job}-{index}"
            own.mkdir(parents=True, exist_ok=True)
            words = (*hosts, *place, *flags)
            task = TaskByHand(trainers.start(code / "train.py", *words, log=own / "log", directory=own), own)
            stack.callback(task.end)
            tasks[f"{job}:{index}"] = task
        yield tasks


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that kernels hand out to outgoing connections."""
    found: list[int] = []
    # Suites that run at the same time begin some way from each other.
    for port in range(20000 + os.getpid() * 16 % 10000, 32768):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) and _can_bind(port):
                found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
