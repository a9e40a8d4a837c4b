"""The time from `dtctl up` to the last worker's first step, and from a loss to the next, and both by hand."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measuring import CannotRun, heading, show
from benchmarks.overhead import Process, found_at_work
from tests.desk import Desk, desk
from tests.environments import environment
from tests.hosts import private_network

ROUNDS = 3
PATIENCE_S = 600.0
ENDLESS = "trainer.args.train_steps=100000000"
TWO_OF_EACH = ("jobs.worker.hosts=[node-1, node-2]", "jobs.ps.hosts=[node-1, node-2]")
OFTEN = ("trainer.args.save_secs=2", "trainer.args.log_steps=1")

_BEGINS = re.compile(r"^\w+ \d+ starts at step \d+", re.MULTILINE)
_STEP = re.compile(r"^step \d+", re.MULTILINE)


@dataclass(frozen=True)
class Way:
    name: str
    template: str
    lost: str
    restarted: tuple[str, ...]
    """Tasks that are restarted with it, also by hand. Empty: all tasks."""
    trainers: tuple[str, ...] = ("worker:0", "worker:1")
    """The first of them reports its steps."""
    again: tuple[str, ...] = ()
    """The ones of them that begin to train again; empty: all."""
    settings: tuple[str, ...] = OFTEN
    environment: str = ""


CHIEF = ("chief:0",)
EVERY_STEPS = ("trainer.args.save_steps=50", "trainer.args.log_steps=1")
WAYS = (
    Way("async-ps", "ps-async", "worker:1", ("worker:1",), again=("worker:1",)),
    Way("sync-ps", "ps-sync", "ps:1", (), settings=(*OFTEN, *TWO_OF_EACH, "trainer.args.replicas_to_aggregate=2")),
    Way("in-graph", "in-graph", "worker:1", ("worker:1",), CHIEF),
    Way("ps-strategy", "ps-strategy", "ps:1", ("ps:1", "chief:0"), CHIEF),
    Way("mirrored", "multi-worker-mirrored", "worker:1", (), settings=EVERY_STEPS),
    Way("ddp", "pytorch-ddp", "worker:1", (), environment="torch"),
    Way("kvstore", "mxnet-kvstore", "worker:1", (), environment="mxnet-1.9"),
)


@dataclass(frozen=True)
class Took:
    start_s: float
    loss_s: float


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    private_network.enter()  # in a namespace where every port is free, if possible
    wanted = os.environ.get("DTCTL_WAYS", "").split()
    chosen = [way for way in WAYS if not wanted or way.name in wanted]
    heading("first_step", f"medians of {rounds} alternating runs on {os.cpu_count()} cores, and their ratios'")
    for way in chosen:
        try:
            python = str(environment(way.environment)) if way.environment else ""
        except Exception as error:
            raise CannotRun(f"{way.template}: {error}") from error
        pairs = [_pair(way, python) for _ in range(rounds)]
        _show(f"{way.name}: up", [(ours.start_s, by_hand.start_s) for ours, by_hand in pairs])
        _show(f"{way.name}: {way.lost} killed", [(ours.loss_s, by_hand.loss_s) for ours, by_hand in pairs])


def _show(what: str, pairs: list[tuple[float, float]]) -> None:
    ours, by_hand = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratios = [one / other for one, other in pairs]
    value = f"{ours:.1f} s, {by_hand:.1f} s by hand"
    show(what, value, statistics.median(ratios), f"by hand ({min(ratios):.2f} to {max(ratios):.2f})", "1.1")


def _pair(way: Way, python: str) -> tuple[Took, Took]:
    """The times with dtctl, then those of the same processes by hand."""
    with tempfile.TemporaryDirectory() as directory, desk(Path(directory, "home")) as user:
        del user.env["PYTHONWARNINGS"]  # the trainers' frameworks warn
        user.dtctl("init", "--template", way.template)
        (name,) = re.findall(r"^name: (\S+)", (user.project / "cluster.yaml").read_text(), re.MULTILINE)
        settings = [*way.settings, ENDLESS]
        settings += [f"trainer.python={python}", "trainer.setup=", "trainer.venv="] if python else []
        words = ["up", "-q", "--local", *(word for text in settings for word in ("--set", text))]
        begin = time.monotonic()
        up = subprocess.Popen(user.argv(*words), cwd=user.project, env=user.env, stdout=subprocess.DEVNULL)
        logs = _LogsOfRun(user)
        start_s = logs.wait(way.trainers, 1, begin)
        assert up.wait() == 0
        processes = {task: found_at_work(entry["pid"]) for task, entry in logs.tasks().items()}
        time.sleep(5.0)  # until something is saved
        begin = time.monotonic()
        os.kill(logs.tasks()[way.lost]["pid"], signal.SIGKILL)
        loss_s = logs.wait(way.again or way.trainers, 2, begin)
        user.dtctl("stop", "--grace", "1s", timeout_s=60)
        output = user.home / "dtctl" / name / "output"
        for left in sorted(output.glob("**/*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()
        return Took(start_s, loss_s), _by_hand(way, processes, Path(directory))


class _Logs:
    """The output of the tasks in all their attempts."""

    def files(self, task: str) -> list[Path]:
        raise NotImplementedError

    def wait(self, tasks: tuple[str, ...], times: int, begin: float) -> float:
        """The seconds until all tasks have begun to train `times` times, and the first has reported a step since."""

        def all_train() -> bool:
            return all(self._trains(task, times, tells=task == tasks[0]) for task in tasks)

        deadline = time.monotonic() + PATIENCE_S
        while not all_train():
            if time.monotonic() > deadline or self.has_ended():
                raise RuntimeError("\n".join(self.text(task)[-2000:] for task in tasks))
            time.sleep(0.05)
        return time.monotonic() - begin

    def has_ended(self) -> bool:
        """Whether a task has ended that will not be restarted."""
        return False

    def _trains(self, task: str, times: int, *, tells: bool) -> bool:
        begins = list(_BEGINS.finditer(self.text(task)))
        return len(begins) >= times and (not tells or bool(_STEP.search(self.text(task), begins[times - 1].end())))

    def text(self, task: str) -> str:
        return "".join(file.read_text(errors="replace") for file in self.files(task))


class _LogsOfRun(_Logs):
    def __init__(self, user: Desk) -> None:
        self._user = user

    def files(self, task: str) -> list[Path]:
        name = task.replace(":", "-")
        found = self._user.home.glob(f".dtctl/runs/*/*/tasks/{name}/attempt-*/log")
        return sorted(found, key=lambda log: int(log.parent.name.rpartition("-")[2]))

    def tasks(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for state in self._user.home.glob(".dtctl/runs/*/*/state.json"):
            found |= json.loads(state.read_text())["tasks"]
        return found


class _LogsByHand(_Logs):
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def files(self, task: str) -> list[Path]:
        return sorted(self._directory.glob(f"{task}.*"))

    def start(self, task: str, process: Process) -> None:
        log = self._directory / f"{task}.{len(self.files(task))}"
        with log.open("wb") as output:
            self._running[task] = process.start(output)

    def has_ended(self) -> bool:
        return any(process.poll() is not None for process in self._running.values())

    def kill(self, task: str) -> None:
        self._running[task].kill()
        self._running[task].wait()

    def kill_all(self) -> None:
        for task in self._running:
            self.kill(task)


def _by_hand(way: Way, processes: Mapping[str, Process], directory: Path) -> Took:
    logs = _LogsByHand(directory)
    try:
        begin = time.monotonic()
        for task, process in processes.items():
            logs.start(task, process)
        start_s = logs.wait(way.trainers, 1, begin)
        time.sleep(5.0)
        again = way.restarted or tuple(processes)
        for task in again:
            logs.kill(task)
        begin = time.monotonic()
        for task in again:
            logs.start(task, processes[task])
        return Took(start_s, logs.wait(way.again or way.trainers, 2, begin))
    finally:
        logs.kill_all()
