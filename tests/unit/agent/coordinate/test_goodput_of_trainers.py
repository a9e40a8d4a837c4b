"""The goodput that a coordinator computes, beside the trainers' own records; their logs are really read."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate.accounting import Accounting
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.run_state import Entry, Past, Start, State
from dtctl.agent.run import goodput
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise.attempt import Attempt
from dtctl.agent.supervise.context import TaskContext
from dtctl.agent.supervise.observation import Observation
from tests.unit.agent.coordinate import views
from tests.unit.agent.supervise import supervised

BEGAN = 1000.0
TICK_S = 0.05
PROGRESS_S = 2.0
"""How often an agent reports progress."""


class Recorded:
    """One attempt of a trainer, by its own records: when it began and ended, and each step that it printed."""

    def __init__(self, begin: float, end: float, steps: list[tuple[float, int]]) -> None:
        self.begin, self.end, self.steps = begin, end, steps


def attempt(begin: float, start_s: float, first: int, last: int, step_s: float, tail_s: float = 0.0) -> Recorded:
    steps = [(begin + start_s + step_s * number, step) for number, step in enumerate(range(first, last + 1))]
    return Recorded(begin, steps[-1][0] + tail_s, steps)


def kept_s(attempts: list[Recorded]) -> float:
    """The time of the steps that no attempt had made before; the first of an attempt is a part of its startup."""
    furthest, kept = -1, 0.0
    for one in attempts:
        before = one.begin
        for number, (at, step) in enumerate(one.steps):
            kept += (at - before) * (number > 0 and step > furthest)
            before = at
        furthest = max(furthest, *(step for _, step in one.steps))
    return kept


class Host:
    """The agent and the coordinator of a run of one trainer, look by look."""

    def __init__(self, directory: Path, attempts: list[Recorded], rng: random.Random) -> None:
        self.directory, self.attempts, self.rng = directory, attempts, rng
        self.view = views.unheard("collective", {"worker:0": "c"})
        self.view.data["account"] = goodput.begun(BEGAN)
        self.view.wanted(["worker:0"], want="run")
        self.entry = made(Entry, state="pending")
        self.report(BEGAN)
        self.accounting = Accounting(self.view)
        self.wall = self.reported = self.updated = BEGAN

    def report(self, wall: float) -> None:
        entry = checked(Entry, copy.deepcopy(self.entry))
        state = made(State, run="r", host="c", tasks={"worker:0": entry})
        self.view.hosts["c"].update({"connected": True, "heard": wall, "state": state})
        self.reported = wall

    def tick(self, *, news: bool = False) -> None:
        if news or self.wall - self.reported >= PROGRESS_S:
            self.report(self.wall)
        self.accounting.update(self.wall - self.updated, [], self.wall)
        self.updated = self.wall

    def run(self) -> dict[str, float]:
        for number, one in enumerate(self.attempts, 1):
            self.wait_until(one.begin)
            self.play(number, one)
        self.accounting.close("Succeeded", self.wall)
        account = self.view.data["account"]
        assert account is not None
        found: dict[str, float] = {str(what): seconds for what, seconds in goodput.parts(account).items()}
        return {**found, "elapsed": account["seconds"]}

    def wait_until(self, time: float) -> None:
        while self.wall < time:
            self.wall += TICK_S
            self.tick()

    def play(self, number: int, one: Recorded) -> None:
        path = self.directory / str(number)
        path.mkdir()
        begun: dict[str, Any] = {"state": "running", "attempt": number, "since": self.wall, "ready": True}
        self.entry.update({**begun, "step": None, "step_time": None, "first_step": None, "first_step_time": None})  # type: ignore[typeddict-item]
        task = supervised.task("worker:0")
        context = TaskContext(RunFiles("/run"), supervised.spec(task), {}, {}, lambda *_: None, lambda _: None)
        here = Attempt(str(path), self.wall)
        here._start = made(Start, started=one.begin)
        observation = Observation(context, task, self.entry, here, self.wall)
        lines = iter(one.steps)
        pending = next(lines, None)
        (path / "log").touch()
        self.tick(news=True)
        over = False
        while not over:
            self.wall += TICK_S
            over = self.wall >= one.end
            with (path / "log").open("a") as log:
                written = None
                while pending is not None and pending[0] <= self.wall:
                    print(f"step {pending[1]} loss 0.5", file=log)
                    written, pending = pending[0], next(lines, None)
            if written is not None:
                os.utime(path / "log", (written, written))
            if over:
                observation.sees_end(self.wall, self.wall)
                self._end(number, one)
            else:
                observation.update(self.wall, self.wall)
            self.tick(news=over)

    def _end(self, number: int, one: Recorded) -> None:
        last = number == len(self.attempts)
        known = {name: self.entry[name] for name in ("step", "step_time", "first_step", "first_step_time")}
        past = made(Past, attempt=number, started=one.begin, ended=one.end, asked=False, code=0 if last else 1, **known)
        self.entry["history"] = [*self.entry["history"], past]
        self.entry["state"] = "succeeded" if last else "backoff"


def of(directory: Path, attempts: list[Recorded], seed: int = 1) -> tuple[dict[str, float], float]:
    """The account, and the true goodput."""
    found = Host(directory, attempts, random.Random(seed)).run()
    return found, kept_s(attempts) / (attempts[-1].end - BEGAN)


def in_a_row(*made_of: tuple[float, int, int, float], gap_s: float = 0.3) -> Iterator[Recorded]:
    begin = BEGAN + 0.5
    for start_s, first, last, step_s in made_of:
        one = attempt(begin, start_s, first, last, step_s)
        yield one
        begin = one.end + gap_s


@pytest.mark.parametrize("start_s", [0.1, 4.0])
@pytest.mark.parametrize("step_s", [0.002, 0.01, 0.05])
def test_steps_that_a_quick_restart_does_again_are_not_kept(tmp_path: Path, start_s: float, step_s: float) -> None:
    attempts = list(in_a_row(*[(start_s, 1, 300, step_s)] * 3))
    found, true = of(tmp_path, attempts)
    assert found["kept"] / found["elapsed"] == pytest.approx(true, abs=0.02)
    assert found["again"] == pytest.approx(2 * 299 * step_s, abs=0.5)
    assert found["start"] == pytest.approx(3 * start_s, abs=0.8)


def random_attempts(rng: random.Random) -> list[Recorded]:
    """A run of some minutes: quick and slow programs, some of which restore a checkpoint."""
    begin, furthest, found = BEGAN + rng.uniform(0.1, 3), 0, []
    step_s, every = 10 ** rng.uniform(-2.5, 0.3), rng.choice([1, 1, 5, 20])
    restarts, start_s = rng.randrange(0, 6), rng.choice([0.05, 0.5, 4.0, 15.0])
    for _ in range(restarts + 1):
        first = rng.choice([0, furthest // 2, furthest]) if furthest else 0
        lasts_s = 10 ** rng.uniform(0.3, 2.0)
        steps, at = [], begin + start_s * rng.uniform(0.8, 1.2)
        for step in range(first + 1, first + max(2 * every, int(lasts_s / step_s)) + 1):
            at += step_s * rng.uniform(0.7, 1.3)
            if step % every == 0:
                steps.append((at, step))
        found.append(Recorded(begin, at + rng.choice([0.0, rng.uniform(0, 2)]), steps))
        furthest = max(furthest, steps[-1][1])
        begin = found[-1].end + rng.choice([0.1, rng.uniform(0.1, 8)])
    return found


def differs_by(tmp_path: Path, seed: int) -> float:
    rng = random.Random(seed)
    directory = tmp_path / str(seed)
    directory.mkdir()
    found, true = of(directory, random_attempts(rng), seed)
    return found["kept"] / found["elapsed"] - true


@pytest.mark.parametrize("seed", range(5))
def test_goodput_is_that_of_the_trainers_own_records(tmp_path: Path, seed: int) -> None:
    assert differs_by(tmp_path, seed) == pytest.approx(0.0, abs=0.01)


@pytest.mark.nightly
def test_goodput_of_fifty_random_runs_is_that_of_the_trainers_own_records(tmp_path: Path) -> None:
    found = {seed: differs_by(tmp_path, seed) for seed in range(50)}
    assert {seed: by for seed, by in found.items() if abs(by) > 0.01} == {}
