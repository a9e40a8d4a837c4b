"""The examples of docs/trainers.md, as they stand there, with real TensorFlow: stopped, started again, ended."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.rooms.init.operation import write_helper
from dtctl.trainer import SAVED
from tests.training.nursery import DEADLINE_S, Nursery, Trainee, nursery
from tests.waiting import eventually

pytestmark = [
    pytest.mark.training,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trainers.md"
FOR_EVER = 100_000_000


@pytest.fixture(scope="module")
def trainers() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


class Example:
    """An example of the page, its cluster, and where it saves."""

    def __init__(self, trainers: Nursery, root: Path, title: str, **jobs: int) -> None:
        section = re.search(rf"^## {title}$.*?^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
        assert section, title
        self.script = root / "train.py"
        self.script.write_text(section[1])
        write_helper(root)
        self.output = root / "output"
        self.trainers, self.root, self.jobs = trainers, root, jobs
        self.new_addresses()

    def new_addresses(self) -> None:
        """For tasks that start together again while the old ones' ports may not be free yet."""
        ports = iter(free_ports(sum(self.jobs.values())))
        self.cluster = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in self.jobs.items()}

    def start(self, task: str, steps: int = FOR_EVER) -> Trainee:
        job, _, index = task.partition(":")
        place = json.dumps({"cluster": self.cluster, "task": {"type": job, "index": int(index)}})
        log = self.root / f"{job}-{index}-{len(list(self.root.glob('*.log')))}.log"
        return self.trainers.start(self.script, self.output, steps, log=log, TF_CONFIG=place)

    def saved(self, directory: str = ".") -> list[int]:
        """Steps of the complete checkpoints, the newest first."""
        (found,) = reading.report([str(self.output / directory)])
        assert found["incomplete"] == []
        return [each["step"] for each in found["all"] if each["complete"] and each["step"] is not None]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, below those that kernels hand out to outgoing connections."""
    # Suites that run at the same time begin some way from each other.
    ports = range(20000 + os.getpid() * 16 % 10000, 32768)
    return list(itertools.islice(filter(_can_bind, ports), count))


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def last(trainer: Trainee, pattern: str = r"^step (\d+)") -> int:
    """The number that the last such line tells, once there is one."""
    found: list[Any] = eventually(
        lambda: re.findall(pattern, trainer.printed(), re.MULTILINE), DEADLINE_S, f"{pattern} in {trainer.log}"
    )
    return int(found[-1])


def first_step(trainer: Trainee) -> int:
    return last(trainer, r"^starts at step (\d+)")


@pytest.mark.nightly
def test_a_tf1_session_saves_at_the_step_where_it_is(trainers: Nursery, tmp_path: Path) -> None:
    example = Example(trainers, tmp_path, "TF1 session", ps=1, chief=1, worker=1)
    ps, chief = example.start("ps:0"), example.start("chief:0")
    last(chief)
    worker = example.start("worker:0")  # now, since it looks for the chief only every 30 s
    last(worker)
    assert example.saved() == [0]
    trained = last(chief)
    chief.send(signal.SIGTERM)
    assert chief.wait() == SAVED, chief.printed()
    assert example.saved()[0] >= trained
    for other in (worker, ps):
        other.send(signal.SIGTERM)
        assert other.wait() == SAVED, other.printed()


def test_a_tf2_loop_saves_goes_on_from_there_and_succeeds_at_its_end(trainers: Nursery, tmp_path: Path) -> None:
    example = Example(trainers, tmp_path, "TF2 loop", ps=1, worker=1, chief=1)
    servers = [example.start("ps:0"), example.start("worker:0")]
    chief = example.start("chief:0")
    trained = last(chief)
    chief.send(signal.SIGTERM)
    assert chief.wait() == SAVED, chief.printed()
    (saved,) = example.saved()
    assert saved >= trained

    chief = example.start("chief:0", steps=saved + 100)
    assert chief.wait() == 0, chief.printed()
    assert first_step(chief) == saved
    assert example.saved() == [saved + 100, saved]
    for server in servers:
        server.send(signal.SIGTERM)
        assert server.wait() == SAVED, server.printed()


@pytest.mark.nightly
def test_workers_that_mirror_each_other_stop_at_one_step_whichever_is_asked(trainers: Nursery, tmp_path: Path) -> None:
    example = Example(trainers, tmp_path, "MultiWorkerMirroredStrategy", worker=2)

    def start(steps: int = FOR_EVER) -> list[Trainee]:
        example.new_addresses()
        return [example.start("worker:0", steps), example.start("worker:1", steps)]

    def ended(workers: list[Trainee]) -> int:
        """The step of the newest checkpoint, the same of both."""
        for worker in workers:
            assert worker.wait() == SAVED, worker.printed()
        assert example.saved() == example.saved("workertemp_1")
        return example.saved()[0]

    chief, other = workers = start()
    trained = min(last(worker) for worker in workers)
    other.send(signal.SIGTERM)
    one_was_asked = ended(workers)
    assert one_was_asked >= trained

    chief, other = workers = start()
    assert [first_step(worker) for worker in workers] == [one_was_asked] * 2
    trained = min(last(worker) for worker in workers)
    # The frozen one keeps the other from ending before both have been asked.
    chief.send(signal.SIGSTOP)
    other.send(signal.SIGTERM)
    chief.send(signal.SIGTERM)
    chief.send(signal.SIGCONT)
    both_were_asked = ended(workers)
    assert both_were_asked >= trained

    workers = start(steps=both_were_asked + 20)
    for worker in workers:
        assert worker.wait() == 0, worker.printed()
    assert example.saved()[0] == both_were_asked + 20
