"""A run in which nothing happens orders nothing and writes nothing, whatever holds its tasks, and of how many hosts."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dtctl.agent.run import drains, intents
from tests.nights import at_night
from tests.unit.agent.coordinate.world import World, running

pytestmark = pytest.mark.usefixtures("processes_in_memory")

ANNA = "anna@desk"
MOST_ALONE = 64
"""Of more hosts, all are drained at once: one after the other takes a minute."""

GIVEN_UP = {"host_timeout_s": 20.0}

Act = Callable[[World, Sequence[str]], None]
Case = tuple[Act, str, int]


def cluster(strategy: str, hosts: int, **fields: Any) -> World:
    """A chief and a worker on each of `hosts` others."""
    return running(World(strategy, {"chief:0": "a", **{f"worker:{n}": f"h{n}" for n in range(hosts)}}, **fields))


def holds_itself(world: World, host: str, kind: Any) -> None:
    """As the agent of a host that shuts down, or that was cut off, holds its tasks."""
    own = {task: world.tasks[task] for task, place in world.places.items() if place == host}
    wanted, entries = {name: one.intent for name, one in own.items()}, {name: one.entry for name, one in own.items()}
    for task, intent in intents.to_hold(kind, 5.0, {**world.spec, "host": host}, wanted, entries).items():
        world.tasks[task].intent = intent


def drain(world: World, hosts: Sequence[str]) -> None:
    for host in hosts:
        world.request("drain", host=host, by=ANNA)
        if len(hosts) <= MOST_ALONE:
            world.tick()


def scale(world: World, hosts: Sequence[str]) -> None:
    world.request("drain", by=ANNA, count=len(world.tasks) - 1 - len(hosts), job="worker")


def shut_down(world: World, hosts: Sequence[str]) -> None:
    for host in hosts:
        holds_itself(world, host, drains.SHUTTING_DOWN)
    world.run_for(3.0)
    for host in hosts:
        world.crash(host)


def cut_off(world: World, hosts: Sequence[str]) -> None:
    for host in hosts:
        world.cut.add(host)
        holds_itself(world, host, drains.CUT_OFF)
    world.run_for(5.0)
    world.cut.clear()


def leave_out(world: World, hosts: Sequence[str]) -> None:
    """Fewer than half of them: without a majority of the hosts, the coordinator leaves nobody out."""
    for host in hosts[: (len(hosts) + 1) // 2]:
        world.crash(host)


EVERY = (drain, scale, shut_down, cut_off, leave_out)


def mixture(world: World, hosts: Sequence[str]) -> None:
    """Each of them for a part of the hosts."""
    for number, act in enumerate(EVERY):
        if act is scale:
            act(world, hosts[-1:])  # the last workers are the surplus
        elif part := hosts[: -1 or None][number :: len(EVERY)]:
            act(world, part)
        world.run_for(2.0)


FEW = [*itertools.product((*EVERY, mixture), ("collective", "async-ps"), (1, 8, 9))]
MANY = [
    *itertools.product((*EVERY, mixture), ("collective", "async-ps"), (64,)),
    *itertools.product((drain, scale, mixture), ("collective",), (300,)),
]
BY_DAY = [*FEW, (mixture, "collective", 64), (mixture, "async-ps", 64), (drain, "collective", 300)]
"""Of 64 hosts the mixture has each of the others; of 300 all are drained at once."""


def name_of(case: Case) -> str:
    return f"{case[0].__name__} of {case[2]}, {case[1]}"


@pytest.mark.parametrize("case", at_night([*FEW, *MANY], but=BY_DAY), ids=name_of)
def test_a_step_without_news_orders_nothing(case: Case) -> None:
    act, strategy, count = case
    world = cluster(strategy, count + 3, min_workers=1, resizes=strategy == "collective", recovery=GIVEN_UP)
    act(world, [f"h{number}" for number in range(3, count + 3)])
    world.run_for(40.0)
    assert act is cut_off or any(map(drains.is_drained, world.data["intents"].values()))
    before, sent, events = copy.deepcopy(world.data["intents"]), len(world.sent), len(world.events)
    world.run_for(5.0)
    assert world.data["intents"] == before
    assert world.sent[sent:] == []
    assert world.events[events:] == []
