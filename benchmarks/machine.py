"""What all processes of a measurement take together, those that have detached themselves too: a control group's CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import CannotRun

CPUACCT = Path("/sys/fs/cgroup/cpuacct")


class Group:
    """Whatever this process starts is counted, wherever it goes."""

    def __init__(self, directory: Path) -> None:
        self._usage = directory / "cpuacct.usage"

    def cpu_s(self) -> float:
        return int(self._usage.read_text()) / 1e9


@contextmanager
def counted() -> Iterator[Group]:
    """This process and all that it starts in there, in a control group of their own. Raises CannotRun."""
    directory = CPUACCT / f"dtctl-benchmark-{os.getpid()}"
    try:
        directory.mkdir()
    except OSError as error:
        raise CannotRun(f"no control group that counts CPU: {error.strerror}") from error
    before = CPUACCT / _own_group()
    try:
        (directory / "tasks").write_text(str(os.getpid()))
        yield Group(directory)
    finally:
        for task in (directory / "tasks").read_text().split():
            _move(task, before)
        directory.rmdir()


def _own_group() -> str:
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return next(path for _, names, path in lines if "cpuacct" in names.split(",")).lstrip("/")


def _move(task: str, group: Path) -> None:
    try:
        (group / "tasks").write_text(task)
    except OSError:  # it has ended
        return
