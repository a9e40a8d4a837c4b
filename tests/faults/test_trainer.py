"""The stand-in behaves as docs and measurements say that TensorFlow does: by hand, on loopback, under kills."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.trainer import checkpoint
from tests.training.by_hand import free_ports
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.nightly  # the faults of `make test` train with it already

FOLDER = Path(__file__).parent


class Trainers:
    """Tasks of one cluster, started one by one; each keeps its log over all its starts."""

    def __init__(self, directory: Path, *flags: str, **counts: int) -> None:
        self.directory, self.flags = directory, flags
        ports = iter(free_ports(sum(counts.values())))
        self.addresses = {job: [f"127.0.0.1:{next(ports)}" for _ in range(count)] for job, count in counts.items()}
        self.names = [f"{job}:{index}" for job, count in counts.items() for index in range(count)]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> None:
        job, index = name.split(":")
        lists = [f"--{job}_hosts={','.join(addresses)}" for job, addresses in self.addresses.items()]
        words = [
            *lists,
            f"--job_name={job}",
            f"--task_index={index}",
            f"--output_dir={self.directory}/out",
            *self.flags,
        ]
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "trainer", *words], cwd=FOLDER, stdout=log, stderr=subprocess.STDOUT
            )

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def printed(self, name: str, pattern: str) -> list[str]:
        return re.findall(pattern, self.log(name).read_text(), re.MULTILINE)

    def step(self, name: str) -> int:
        return int((self.printed(name, r"^step (\d+)") or ["0"])[-1])

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.running[name].send_signal(number)
        if number == signal.SIGKILL:
            self.running[name].wait()

    def exit_of(self, name: str) -> int:
        return self.running[name].wait(PATIENCE_S)

    def lives(self, name: str) -> bool:
        return self.running[name].poll() is None

    def goes_on(self, *names: str) -> None:
        for name in names:
            before = len(self.printed(name, "^step"))
            eventually(lambda: len(self.printed(name, "^step")) > before + 1, what=f"{name} to go on")  # noqa: B023


@pytest.fixture
def started() -> Iterator[list[Trainers]]:
    """What the test has started is ended with it."""
    made: list[Trainers] = []
    yield made
    for trainers in made:
        for process in trainers.running.values():
            process.kill()
            process.wait()


@pytest.fixture
def trainers(request: pytest.FixtureRequest, started: list[Trainers], tmp_path: Path) -> Trainers:
    way, counts = request.param
    flags = ["--train_steps=100000", "--save_s=0.3", "--heartbeat_s=6", f"--way={way}"]
    started.append(Trainers(tmp_path, *flags, **counts))
    return started[0]


asynchronous = pytest.mark.parametrize("trainers", [("async", {"ps": 2, "worker": 2})], indirect=True)
synchronous = pytest.mark.parametrize("trainers", [("sync", {"ps": 1, "worker": 2})], indirect=True)
collective = pytest.mark.parametrize("trainers", [("collective", {"worker": 3})], indirect=True)
strategy = pytest.mark.parametrize(
    "trainers", [("ps-strategy", {"ps": 1, "chief": 1, "worker": 2})], indirect=True, ids=["strategy"]
)


@asynchronous
def test_async_a_lost_ps_silences_all_until_the_chief_restores_it(trainers: Trainers) -> None:
    eventually(lambda: checkpoint.named(trainers.directory / "out"), what="a checkpoint")
    trainers.goes_on("worker:0", "worker:1")
    trainers.kill("ps:1")
    eventually(lambda: trainers.printed("worker:0", "An error was raised"))
    eventually(lambda: trainers.printed("worker:1", "An error was raised"))
    assert trainers.lives("worker:0")
    assert trainers.lives("worker:1")
    saved = checkpoint.named(trainers.directory / "out")[-1]
    trainers.start("ps:1")
    trainers.goes_on("worker:0", "worker:1")
    assert trainers.printed("worker:0", r"^restored (\S+)") == [saved]
    assert len(trainers.printed("worker:0", "An error was raised")) == 1


@asynchronous
def test_async_a_chief_that_comes_back_rolls_everybody_back_without_notice(trainers: Trainers) -> None:
    eventually(lambda: checkpoint.named(trainers.directory / "out"), what="a checkpoint")
    trainers.kill("worker:0")
    saved = int(checkpoint.named(trainers.directory / "out")[-1].rpartition("-")[2])
    eventually(lambda: trainers.step("worker:1") > saved + 40, what="worker:1 to train without the chief")
    before = trainers.step("worker:1")
    trainers.start("worker:0")
    eventually(lambda: trainers.step("worker:1") < before, what="worker:1 to be rolled back")
    assert not trainers.printed("worker:1", "An error was raised")


@asynchronous
def test_async_a_frozen_ps_is_silence(trainers: Trainers) -> None:
    trainers.goes_on("worker:0", "worker:1")
    trainers.kill("ps:0", signal.SIGSTOP)
    eventually(lambda: _silent(trainers, "worker:0") and _silent(trainers, "worker:1"))
    assert trainers.lives("worker:0")
    assert not trainers.printed("worker:0", "An error was raised")
    trainers.kill("ps:0", signal.SIGCONT)
    trainers.goes_on("worker:0", "worker:1")


@synchronous
def test_sync_a_lost_worker_stalls_the_others_until_it_is_back(trainers: Trainers) -> None:
    trainers.goes_on("worker:0", "worker:1")
    trainers.kill("worker:1")
    eventually(lambda: _silent(trainers, "worker:0"))
    trainers.start("worker:1")
    trainers.goes_on("worker:0", "worker:1")


@synchronous
def test_sync_a_lost_ps_fails_the_chief_while_the_worker_ends_as_if_it_were_done(trainers: Trainers) -> None:
    trainers.goes_on("worker:0", "worker:1")
    trainers.kill("ps:0")
    assert trainers.exit_of("worker:0") == 1
    assert trainers.printed("worker:0", "sync_token_q' is closed")
    assert trainers.exit_of("worker:1") == 0


@strategy
def test_strategy_a_lost_worker_is_taken_back_and_a_lost_ps_ends_the_chief(trainers: Trainers) -> None:
    trainers.goes_on("chief:0")
    trainers.kill("worker:1")
    trainers.goes_on("chief:0")
    trainers.start("worker:1")
    trainers.kill("ps:0")
    assert trainers.exit_of("chief:0") == 1
    assert trainers.lives("worker:0")
    trainers.start("ps:0")
    trainers.start("chief:0")
    trainers.goes_on("chief:0")
    assert trainers.printed("chief:0", "^restored")


@collective
@pytest.mark.parametrize("lost", ["worker:0", "worker:2"])
def test_collective_a_lost_task_is_the_end_of_all(trainers: Trainers, lost: str) -> None:
    trainers.goes_on(*trainers.names)
    trainers.kill(lost)
    for name in trainers.names:
        assert trainers.exit_of(name) == (-9 if name == lost else 1)


@collective
@pytest.mark.parametrize("frozen", ["worker:0", "worker:1"])
def test_collective_a_frozen_task_is_the_end_of_the_others_after_the_heartbeat(trainers: Trainers, frozen: str) -> None:
    trainers.goes_on(*trainers.names)
    trainers.kill(frozen, signal.SIGSTOP)
    for name in trainers.names:
        if name != frozen:
            assert trainers.exit_of(name) == 1


@collective
def test_collective_a_task_that_comes_back_alone_waits_or_ends_the_others(trainers: Trainers) -> None:
    trainers.goes_on(*trainers.names)
    trainers.kill("worker:2")
    trainers.exit_of("worker:0")
    trainers.exit_of("worker:1")
    trainers.start("worker:0")
    eventually(lambda: trainers.printed("worker:0", "Waiting for 1/3 tasks"))
    trainers.start("worker:1")
    trainers.start("worker:2")
    trainers.goes_on(*trainers.names)


@collective
def test_collective_sigterm_to_one_saves_and_ends_all_with_42(trainers: Trainers) -> None:
    trainers.goes_on(*trainers.names)
    trainers.kill("worker:1", signal.SIGTERM)
    assert [trainers.exit_of(name) for name in trainers.names] == [42, 42, 42]


def test_sigterm_saves_and_ends_unless_it_is_swallowed(started: list[Trainers], tmp_path: Path) -> None:
    (tmp_path / "swallowed").mkdir()
    for directory, flags in ((tmp_path, []), (tmp_path / "swallowed", ["--swallow_sigterm"])):
        made = Trainers(directory, "--train_steps=100000", "--save_s=1000", *flags, ps=1, worker=1)
        started.append(made)
        made.goes_on("worker:0")
        for name in made.names:
            made.kill(name, signal.SIGTERM)
        if flags:
            made.goes_on("worker:0")
            assert made.lives("ps:0")
        else:
            assert made.exit_of("worker:0") == 0
            assert made.exit_of("ps:0") == 0
            assert (directory / "out" / "checkpoint").exists()


def _silent(trainers: Trainers, name: str) -> bool:
    return time.time() - trainers.log(name).stat().st_mtime > 1.0
