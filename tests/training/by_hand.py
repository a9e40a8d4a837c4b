"""The first trainer as a user starts it without dtctl: one process per task, with the same lists of addresses."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dtctl.operations.init import write_template

DEADLINE_S = 240.0
"""Four imports of TensorFlow at once on a busy machine take a minute."""


class TaskByHand:
    """One task: its process, its own working directory, and what it has printed."""

    def __init__(self, argv: list[str], directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._log = directory / "log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, cwd=directory, env=_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def find(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.printed(), re.MULTILINE)

    def ask_to_stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@contextmanager
def cluster_by_hand(root: Path, *flags: str, ps: int, workers: int) -> Iterator[Mapping[str, TaskByHand]]:
    """Starts every task below `root/TASK`, with the code in `root/code`; ends whatever still runs at the end."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(ps + workers)]
    hosts = [f"--ps_hosts={','.join(ports[:ps])}", f"--worker_hosts={','.join(ports[ps:])}"]
    places = [("ps", index) for index in range(ps)] + [("worker", index) for index in range(workers)]
    code = root / "code"
    if not code.exists():
        write_template("ps-async", code)
    tasks: dict[str, TaskByHand] = {}
    with ExitStack() as stack:
        for job, index in places:
            place = [f"--job_name={job}", f"--task_index={index}"]
            task = TaskByHand([sys.executable, str(code / "train.py"), *hosts, *place, *flags], root / f"{job}-{index}")
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


def _environment() -> dict[str, str]:
    proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    return {name: value for name, value in os.environ.items() if name not in proxies} | quiet
