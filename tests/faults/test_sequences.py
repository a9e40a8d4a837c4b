"""Random faults in pairs and sequences on real hosts, with each strategy: the run recovers from all of them.

FAULTS is their number, FAULTS_SEED repeats them. Many more of them on a simulated clock:
tests/unit/agent/coordinate/test_sequences.py.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.desk import Desk
from tests.faults.scenarios import damage, freeze, hang_at_start, kill, kill_agent_and_task
from tests.faults.scene import ASYNC, COLLECTIVE, STRATEGY, SYNC, Scene, Way, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet

FAULTS = int(os.environ.get("FAULTS", "100"))
CLIENTS = 2

PATIENCE_S = 300.0
"""Two timeouts of 120 s, one after the other, and the starts."""

WAYS = (ASYNC, SYNC, STRATEGY, COLLECTIVE)

pytestmark = [pytest.mark.fleet, pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(300 + FAULTS * 60)]

FAR = 10**9
"""A task that has reached its target step may be silent for any time while it closes."""

RECOVERY = {"max_restarts": 10000, "max_run_restarts": 10000, "stall": "6s", "first_step": "20s", "repeat": 0}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.strategy)
def test_a_run_survives_simultaneous_faults(way: Way, fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, way, recovery=RECOVERY, target_step=FAR)
    scene.up()
    worst = strike_and_mend(scene, SEED, FAULTS // (len(WAYS) * CLIENTS))
    print(f"{way.strategy}: {worst:.0f} s at worst")
    scene.recovery_s = PATIENCE_S
    scene.enough()
    user.dtctl("wait", timeout_s=300)
    assert scene.cluster()["condition"]["type"] == "Succeeded"


def strike_and_mend(scene: Scene, seed: int, count: int) -> float:
    """Returns the longest time from the end of an episode until the run was whole; fails with all events of one."""
    rng, worst, struck = random.Random(seed), 0.0, 0
    lead = scene.run_file(scene.fleet["gpu-3"], "spec.json")["lead"]
    places, scene.recovery_s = scene.places(), PATIENCE_S
    while struck < count:
        story = episode(rng, places, lead)
        struck += len(story)
        reported = "; ".join(f"{fault.after_s:.1f} s {fault.name}" for fault in story)
        print(f"{time.strftime('%H:%M:%S')} FAULTS_SEED={seed} fault {struck}: {reported}", flush=True)
        strike(scene, story)
        over = time.monotonic()
        try:
            scene.recover()
        except AssertionError as error:
            raise AssertionError(f"not healed: FAULTS_SEED={seed}, fault {struck}: {reported}\n{error}") from None
        took_s = time.monotonic() - over
        print(f"{time.strftime('%H:%M:%S')}     healed in {took_s:.1f} s", flush=True)
        worst = max(worst, took_s)
    return worst


LASTS_S = (2.0, 5.0, 12.0, 24.0)
MOST_AT_ONCE = 3
MISSES = (OSError, TypeError, ValueError, KeyError, AssertionError, subprocess.CalledProcessError, json.JSONDecodeError)
"""Errors of a fault for a host that is down, or for a task that does not run."""


Strike = Callable[[Scene], Iterator[float]]
"""Yields for how many seconds the fault lasts, and then ends it.

A host lives as long as the thread that boots it, so one thread does everything."""


@dataclass(frozen=True)
class Fault:
    """`after_s` is relative to the start of its episode."""

    name: str
    after_s: float
    strike: Strike


def episode(rng: random.Random, tasks: dict[str, str], lead: str) -> list[Fault]:
    """Faults that overlap; no host is hit as a whole twice."""
    hosts = sorted(set(tasks.values()))
    rng.shuffle(hosts)
    if rng.random() < 0.35:
        hosts.sort(key=lambda host: host != tasks[lead])
    found: list[Fault] = []
    for _ in range(rng.randint(1, MOST_AT_ONCE)):
        task = lead if rng.random() < 0.35 else rng.choice(sorted(tasks))
        kinds = [_of_task, _of_task, _of_host] if hosts else [_of_task]
        name, strike = rng.choice(kinds)(rng, task, hosts)
        found.append(Fault(name, round(rng.choice([0.0, 0.0, rng.uniform(0.0, 6.0)]), 2), strike))
    return sorted(found, key=lambda fault: fault.after_s)


def strike(scene: Scene, story: Sequence[Fault]) -> None:
    """Returns when all of them are over."""
    began = time.monotonic()
    due = [(began + fault.after_s, number, fault.strike(scene)) for number, fault in enumerate(story)]
    heapq.heapify(due)
    while due:
        at, number, fault = heapq.heappop(due)
        time.sleep(max(0.0, at - time.monotonic()))
        try:
            heapq.heappush(due, (time.monotonic() + next(fault), number, fault))
        except StopIteration:
            pass
        except MISSES as error:
            print(f"    {story[number].name}: missed: {type(error).__name__}", flush=True)


Named = tuple[str, Strike]


def _once(do: Callable[[Scene], object]) -> Strike:
    def strike(scene: Scene) -> Iterator[float]:
        do(scene)
        yield 0.0

    return strike


def _of_task(rng: random.Random, task: str, hosts: list[str]) -> Named:
    lasts = rng.choice(LASTS_S)
    served = task.startswith("ps:")
    every: list[Named] = [
        (f"kill -9 of {task}", _once(kill(task))),
        (f"{task} is frozen", _once(freeze(task))),
        (f"{task} is frozen for {lasts:.0f} s", lambda scene: _freeze(scene, task, lasts)),
        (f"kill -9 of {task} and of its agent", _once(kill_agent_and_task(task))),
        (f"dtctl restart {task}", _once(lambda scene: _type(scene, "restart", task))),
        (f"the newest checkpoint is cut short, kill -9 of {task}", _once(damage(task))),
    ]
    if served:
        every.append((f"{task} exits with 0", _once(lambda scene: faults.send(scene.host(task), scene.pid(task), 15))))
    else:
        every += [
            (f"{task} hangs", _once(lambda scene: _hang(scene, task))),
            (f"kill -9 of {task}, which then hangs at its start", _once(hang_at_start(task))),
        ]
    return rng.choice(every)


def _of_host(rng: random.Random, task: str, hosts: list[str]) -> Named:
    host, lasts = hosts.pop(0), rng.choice(LASTS_S)
    return rng.choice(
        [
            (
                f"{host} crashes, and is back after {lasts:.0f} s",
                lambda scene: _crash(scene, host, lasts, silent=False),
            ),
            (f"{host} loses its power for {lasts:.0f} s", lambda scene: _crash(scene, host, lasts, silent=True)),
            (f"{host} is cut off for {lasts:.0f} s", lambda scene: _cut(scene, host, lasts)),
            (f"kill -9 of the agent of {host}", _once(lambda scene: _kill_agent(scene, host))),
        ]
    )


def _freeze(scene: Scene, task: str, lasts: float) -> Iterator[float]:
    with faults.frozen(scene.host(task), scene.pid(task)):
        yield lasts


def _type(scene: Scene, *words: str) -> None:
    scene.user.run(*words, timeout_s=60)


def _hang(scene: Scene, task: str) -> None:
    scene.host(task).exec("touch", f"{scene.output}/hang-step-{task}")


def _crash(scene: Scene, host: str, lasts: float, *, silent: bool) -> Iterator[float]:
    where = scene.fleet[host]
    if silent:
        scene.fleet.cut(where)
    scene.fleet.crash(where)
    yield lasts
    scene.fleet.heal(where)
    scene.fleet.boot(where)


def _cut(scene: Scene, host: str, lasts: float) -> Iterator[float]:
    scene.fleet.cut(scene.fleet[host])
    yield lasts
    scene.fleet.heal(scene.fleet[host])


def _kill_agent(scene: Scene, host: str) -> None:
    faults.send(scene.fleet[host], scene.agent(scene.fleet[host]))


SEED = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(10**6)))
