"""Random faults: what can happen to a task, to a host and to a link, and episodes of several that overlap."""

from __future__ import annotations

import heapq
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.faults.scenarios import damage, freeze, hang_at_start, kill, kill_agent_and_task
from tests.faults.scene import Scene
from tests.hosts import faults

LASTS_S = (2.0, 5.0, 12.0, 24.0)
PAUSES_S = (12.0, 24.0)
"""Longer than a coordinator's lease."""

UP_S = (0.2, 4.0)
DOWN_S = (0.5, 6.0)
"""How long a flapping link is up, and how long it is down, at least and at most."""

MOST_AT_ONCE = 3

COMMAND_S = 130.0
"""Within it `restart` ends whatever has happened: an answer of the coordinator, of all hosts, and a start."""

SILENT_S = 15.0
"""A command that takes longer has said what it waits for; after 5 s, where the machine is not busy."""

MISSES = (OSError, TypeError, ValueError, KeyError, AssertionError, subprocess.SubprocessError, json.JSONDecodeError)
"""Errors of a fault for a host that is down, or for a task that does not run."""

Strike = Callable[[Scene], Iterator[float]]
"""Yields for how many seconds the fault lasts, or its next part does, and then ends it.

A host lives as long as the thread that boots it, so one thread does everything but typing commands."""

Named = tuple[str, Strike]


class CommandFailed(Exception):
    """A command did not do what any command does: it is no miss of a fault."""


@dataclass(frozen=True)
class Fault:
    """`after_s` is relative to the start of its episode."""

    name: str
    after_s: float
    strike: Strike


def episode(rng: random.Random, tasks: Mapping[str, str], lead: str) -> list[Fault]:
    """Faults that overlap; no host is hit as a whole twice. `tasks`: the host of each."""
    hosts = sorted(set(tasks.values()))
    rng.shuffle(hosts)
    if rng.random() < 0.35:
        hosts.sort(key=lambda host: host != tasks[lead])
    every = sorted(hosts)
    found: list[Fault] = []
    for _ in range(rng.randint(1, MOST_AT_ONCE)):
        task = lead if rng.random() < 0.35 else rng.choice(sorted(tasks))
        if hosts and rng.random() < 0.5:
            name, strike = _of_host(rng, hosts.pop(0), every)
        else:
            name, strike = _of_task(rng, task)
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
            print(f"    {story[number].name}: missed: {type(error).__name__}: {str(error)[:200]}", flush=True)


def _of_task(rng: random.Random, task: str) -> Named:
    lasts = rng.choice(LASTS_S)
    every: list[Named] = [
        (f"kill -9 of {task}", _once(kill(task))),
        (f"{task} is frozen", _once(freeze(task))),
        (f"{task} is frozen for {lasts:.0f} s", _while(lambda s: faults.frozen(s.host(task), s.pid(task)), lasts)),
        (f"kill -9 of {task} and of its agent", _once(kill_agent_and_task(task))),
        (f"dtctl restart {task}", _type("restart", task)),
        (f"the newest checkpoint is cut short, kill -9 of {task}", _once(damage(task))),
    ]
    if task.startswith("ps:"):
        every.append((f"{task} exits with 0", _once(lambda scene: faults.send(scene.host(task), scene.pid(task), 15))))
    else:
        every += [
            (f"{task} hangs", _once(lambda scene: _hang(scene, task))),
            (f"kill -9 of {task}, which then hangs at its start", _once(hang_at_start(task))),
        ]
    return rng.choice(every)


def _of_host(rng: random.Random, host: str, hosts: Sequence[str]) -> Named:
    lasts, pause = rng.choice(LASTS_S), rng.choice(PAUSES_S)
    other = rng.choice([name for name in hosts if name != host])
    turns = [*_turns(rng, lasts)]
    every: list[Named] = [
        (f"{host} crashes, and is back after {lasts:.0f} s", lambda scene: _crash(scene, host, lasts, silent=False)),
        (f"{host} loses its power for {lasts:.0f} s", lambda scene: _crash(scene, host, lasts, silent=True)),
        (f"{host} is cut off for {lasts:.0f} s", lambda scene: _cut(scene, host, [(lasts, 0.0)])),
        (f"kill -9 of the agent of {host}", _once(lambda scene: _kill_agent(scene, host))),
        (f"{host} receives nothing for {lasts:.0f} s", _while(lambda s: faults.drop_incoming(s.fleet[host]), lasts)),
        (f"{host} can send nothing for {lasts:.0f} s", _while(lambda s: faults.drop_outgoing(s.fleet[host]), lasts)),
        (
            f"{host} receives nothing from {other} for {lasts:.0f} s",
            _while(lambda s: faults.drop_incoming_from(s.fleet[host], s.fleet[other]), lasts),
        ),
        (f"the link of {host} flaps {len(turns)} times", lambda scene: _cut(scene, host, turns)),
        (
            f"the agent of {host} is paused for {pause:.0f} s",
            _while(lambda s: faults.frozen(s.fleet[host], s.agent(s.fleet[host])), pause),
        ),
        (f"{host} is paused for {pause:.0f} s", _while(lambda s: faults.paused(s.fleet[host]), pause)),
        (f"the home of {host} is full for {lasts:.0f} s", _while(lambda s: faults.full_home(s.fleet[host]), lasts)),
        (
            f"the home of {host} is full for {pause:.0f} s, kill -9 of its agent",
            _while(lambda s: faults.full_home(s.fleet[host]), pause, lambda scene: _kill_agent(scene, host)),
        ),
    ]
    return rng.choice(every)


def _turns(rng: random.Random, lasts: float) -> Iterator[tuple[float, float]]:
    """For how long a link is down, and then up, until it has flapped for so long."""
    passed_s = 0.0
    while passed_s < lasts:
        turn = (rng.uniform(*DOWN_S), rng.uniform(*UP_S))
        passed_s += sum(turn)
        yield turn


def _once(do: Callable[[Scene], object]) -> Strike:
    def strike(scene: Scene) -> Iterator[float]:
        do(scene)
        yield 0.0

    return strike


def _type(*words: str) -> Strike:
    """A command, while the other faults go on and end. Raises CommandFailed."""

    def strike(scene: Scene) -> Iterator[float]:
        problems: list[str] = []
        typing = threading.Thread(target=lambda: problems.extend(_problems(scene, words)))
        typing.start()
        while typing.is_alive():
            yield 0.1
        if problems:
            raise CommandFailed(f"dtctl {' '.join(words)} {'; '.join(problems)}")

    return strike


def _problems(scene: Scene, words: Sequence[str]) -> Iterator[str]:
    began = time.monotonic()
    try:
        done = scene.user.run(*words, timeout_s=COMMAND_S)
    except subprocess.TimeoutExpired as late:
        yield f"did not end within {COMMAND_S:.0f} s: {late.stderr!r}"
        return
    took_s = time.monotonic() - began
    if took_s > SILENT_S:
        print(f"    dtctl {' '.join(words)}: {took_s:.0f} s, exit {done.returncode}: {done.stderr}", flush=True)
    if "Traceback" in done.stderr:
        yield f"ended with a traceback: {done.stderr}"
    if took_s > SILENT_S and not done.stderr:
        yield f"took {took_s:.0f} s and did not say what it waited for"


def _while(
    around: Callable[[Scene], AbstractContextManager[object]],
    lasts: float,
    within: Callable[[Scene], object] = lambda scene: None,
) -> Strike:
    """A fault that can be undone; `within` happens at its beginning."""

    def strike(scene: Scene) -> Iterator[float]:
        with around(scene):
            within(scene)
            yield lasts

    return strike


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


def _cut(scene: Scene, host: str, turns: Sequence[tuple[float, float]]) -> Iterator[float]:
    for down_s, up_s in turns:
        scene.fleet.cut(scene.fleet[host])
        yield down_s
        scene.fleet.heal(scene.fleet[host])
        yield up_s


def _kill_agent(scene: Scene, host: str) -> None:
    faults.send(scene.fleet[host], scene.agent(scene.fleet[host]))
