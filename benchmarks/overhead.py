"""Whether a trainer started by dtctl is as fast as one started by hand."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.measuring import CannotRun, heading, show
from tests.desk import Desk, desk
from tests.hosts import private_network


@dataclass(frozen=True)
class Process:
    """A trainer as it was found running, to be started again in the same way."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    directory: Path

    def start(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts it in a session of its own, as from a terminal of its own."""
        return subprocess.Popen(
            self.argv,
            env=self.env,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def found_at_work(pid: int) -> Process:
    proc = Path("/proc", str(pid))
    argv = proc.joinpath("cmdline").read_text().rstrip("\0").split("\0")
    pairs = (line.partition("=") for line in proc.joinpath("environ").read_text().rstrip("\0").split("\0"))
    env = {name: value for name, _, value in pairs if not name.startswith("DTCTL_")}
    return Process(tuple(argv), env, Path(os.readlink(proc / "cwd")))


PATIENCE_S = 600.0
ROUNDS = 5
STEPS = 4000
WARM_UP_STEPS = 1000
"""The steps after which every worker trains."""


def run(rounds: int | None = None) -> None:
    rounds = rounds or ROUNDS
    if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("sklearn") is None:
        raise CannotRun("no tensorflow and scikit-learn")
    private_network.enter()  # in a namespace where every port is free, if possible
    pairs = [_pair() for _ in range(rounds)]
    heading("overhead", f"2 ps and 2 workers of the first trainer, medians of {rounds} alternating runs")
    # Consecutive runs are compared with each other, because the machine's own speed drifts.
    ratios = [ours / by_hand for ours, by_hand in pairs]
    ours, by_hand = (f"{statistics.median(some):.0f} steps/s" for some in zip(*pairs, strict=True))
    than = f"by hand ({min(ratios):.2f} to {max(ratios):.2f})"
    show("the steps of dtctl's trainers", f"{ours}, {by_hand} by hand", statistics.median(ratios), than, "0.98")


def _pair() -> tuple[float, float]:
    """Steps per second with dtctl, then those of the same processes by hand."""
    with tempfile.TemporaryDirectory() as directory, desk(Path(directory, "home")) as user:
        user.dtctl("init")
        output = Path(directory, "output")
        user.dtctl(
            "up", "-q", "--local", "--set", f"dirs.output={output}", "--set", f"trainer.args.train_steps={STEPS}"
        )
        processes = _at_work(user)
        user.dtctl("wait", timeout_s=PATIENCE_S)
        ours = steps_per_s(output)
        shutil.rmtree(output)
        _train(processes, Path(directory))
        return ours, steps_per_s(output)


def _at_work(user: Desk) -> dict[str, Process]:
    """The trainers, once all of them have been started."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        tasks = json.loads(user.dtctl("status", "-o", "json"))["tasks"]
        if all(task["pid"] for task in tasks):
            return {task["task"]: found_at_work(task["pid"]) for task in tasks}
    raise RuntimeError("the trainers do not start")


def _train(processes: Mapping[str, Process], directory: Path) -> None:
    """Runs the trainers until the workers have ended; ps tasks never end by themselves."""
    with ExitStack() as stack:
        running = {}
        for task, process in processes.items():
            log = stack.enter_context(Path(directory, task).open("w+b"))
            running[task] = process.start(log)
            stack.callback(running[task].wait)
            stack.callback(running[task].kill)
        for task, one in running.items():
            if task.startswith("worker") and one.wait(PATIENCE_S):
                raise RuntimeError(Path(directory, task).read_text())


def steps_per_s(directory: Path) -> float:
    """The steps per second, from the times of the chief's summaries."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    (events,) = directory.glob("events.out.tfevents.*")
    seen = [(one.step, one.wall_time) for one in EventFileLoader(str(events)).Load() if one.step >= WARM_UP_STEPS]
    (first, begin), (last, end) = seen[0], seen[-1]
    return float((last - first) / (end - begin))
