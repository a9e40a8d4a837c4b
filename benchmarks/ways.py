"""What the ways of training cost and bring: the same network, data and time, with one, two and four workers."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measuring import CannotRun, heading, show
from tests.desk import Desk, desk
from tests.tables import replace_table
from tests.waiting import eventually

BEGIN, END = "<!-- the table is written by `python -m benchmarks ways` -->", "<!-- end of the table -->"
SECONDS = 8.0
WORKERS = (1, 2, 4)
BATCH = 64
"""Images for each gradient of one worker, in all ways."""
START_S = 300.0
ENDLESS = 100_000_000


@dataclass(frozen=True)
class Way:
    name: str
    template: str
    synchronous: bool
    settings: tuple[str, ...] = ()

    def overrides(self, workers: int) -> list[str]:
        hosts = f"[{', '.join(['node-1'] * workers)}]"
        # In its template the batch of a mirrored step is that of all workers together.
        batch = BATCH * workers if self.template == "multi-worker-mirrored" else BATCH
        common = (f"jobs.worker.hosts={hosts}", f"trainer.args.batch_size={batch}", "trainer.args.learning_rate=0.001")
        return [word for text in (*common, *self.settings) for word in ("--set", text)]


ONE_PS = "jobs.ps.hosts=[node-1]"
WAYS = (
    Way("asynchronous", "ps-async", False, (ONE_PS, "trainer.args.save_secs=3600")),
    Way(
        "synchronous, ps",
        "ps-sync",
        True,
        (ONE_PS, "trainer.args.save_secs=3600", "trainer.args.replicas_to_aggregate="),
    ),
    Way("mirrored", "multi-worker-mirrored", True, ("trainer.args.save_steps=1000000",)),
)


@dataclass(frozen=True)
class Measured:
    way: Way
    workers: int
    steps_per_s: float
    accuracy: float

    @property
    def images_per_s(self) -> float:
        """A synchronous step is made of a batch of every worker."""
        return self.steps_per_s * BATCH * (self.workers if self.way.synchronous else 1)


def run(rounds: int | None = None) -> None:
    if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("sklearn") is None:
        raise CannotRun("no tensorflow and scikit-learn")
    found = [_measure(way, workers) for way in WAYS for workers in WORKERS]
    heading("ways", f"{SECONDS:.0f} s of training each on {os.cpu_count()} cores, batches of {BATCH} for each worker")
    for one in found:
        value = f"{one.steps_per_s:.0f} steps/s, {one.accuracy:.3f}"
        show(f"{one.way.name}, {one.workers} workers", value, one.images_per_s / found[0].images_per_s, "one worker")
    if page := os.environ.get("DTCTL_WAYS_REPORT"):
        head = ("way", "workers", "steps/s", "images/s", f"accuracy after {SECONDS:.0f} s")
        replace_table(Path(page), BEGIN, END, head, _rows(found))


def _rows(found: Sequence[Measured]) -> list[tuple[str, ...]]:
    """As ratios to the first, for the seconds are those of one machine."""
    first = found[0]
    return [
        (
            one.way.name,
            str(one.workers),
            f"{one.steps_per_s / first.steps_per_s:.2f}",
            f"{one.images_per_s / first.images_per_s:.2f}",
            f"{one.accuracy:.3f}",
        )
        for one in found
    ]


def _measure(way: Way, workers: int) -> Measured:
    with tempfile.TemporaryDirectory() as directory, desk(Path(directory, "home")) as user:
        user.dtctl("init", "--template", way.template)
        overrides = [*way.overrides(workers), "--set", "trainer.args.log_steps=20"]
        user.dtctl("up", "-q", "--local", *overrides, "--set", f"trainer.args.train_steps={ENDLESS}", timeout_s=START_S)
        eventually(lambda: _all_train(user, workers), START_S, "steps", every_s=1.0)
        begin, first = time.monotonic(), _step(user)
        time.sleep(SECONDS)
        last, seconds = _step(user), time.monotonic() - begin
        user.dtctl("stop", timeout_s=120)
        # A goal that has been reached: what was saved is restored and examined, and nothing is learnt any more.
        user.dtctl("up", "-q", "--local", *overrides, "--set", "trainer.args.train_steps=1", timeout_s=START_S)
        user.dtctl("wait", timeout_s=START_S)
        (result,) = (user.home / "dtctl").glob("*/output/result.json")
        return Measured(way, workers, (last - first) / seconds, json.loads(result.read_text())["held_out_accuracy"])


def _all_train(user: Desk, workers: int) -> bool:
    steps = [task["step"] for task in user.status()["tasks"] if task["task"].startswith("worker:")]
    return len(steps) == workers and all(steps)


def _step(user: Desk) -> int:
    return max(task["step"] or 0 for task in user.status()["tasks"])
