"""What a coordinator does and stores grows no faster than the number of hosts: counted in lines of code and in bytes.

Four times as many hosts may cost four times as much. `python -m tests.scale` has the same in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.messages import TaskProgress
from tests.unit.agent.coordinate.counting import executed
from tests.unit.agent.coordinate.world import World, fleet

SMALL, LARGE = 16, 64
MOST = 1.15 * LARGE / SMALL

PEER_LOST = "tensorflow.python.framework.errors_impl.UnavailableError: Socket closed\n"

Act = Callable[[World], None]


def rest(world: World) -> None:
    world.train_for(3.0)


def crash_of_every_third_host(world: World) -> None:
    hosts = world.hosts[::3]
    for host in hosts:
        world.crash(host)
    world.train_for(1.0)
    for host in hosts:
        world.boot(host)
    world.train_for(7.0)


def end_of_every_third_worker(world: World) -> None:
    world.die(*world.workers[::3])
    world.train_for(5.0)


def connections_lost_by_every_third_worker(world: World) -> None:
    world.die(*world.workers[::3], code=1, log=PEER_LOST)
    world.train_for(5.0)


def workers_that_return_while_nothing_trains(world: World) -> None:
    world.die(*world.workers[::3])
    world.run_for(5.0)


def cut_of_every_third_host(world: World) -> None:
    world.cut.update(world.hosts[::3])
    world.train_for(6.0)
    world.cut.clear()
    world.train_for(12.0)


def restart_of_the_coordinator(world: World) -> None:
    world.restart_coordinator()
    world.train_for(2.0)


def stop(world: World) -> None:
    world.request("stop")
    world.train_for(3.0)


def restart(world: World) -> None:
    world.request("restart")
    world.train_for(3.0)


def drain_and_undrain(world: World) -> None:
    host = world.hosts[-1]
    world.request("drain", host=host)
    world.train_for(3.0)
    world.request("undrain", host=host)
    world.train_for(3.0)


def scale(world: World) -> None:
    world.request("drain", job="worker", count=len(world.workers) // 2)
    world.train_for(3.0)
    world.request("drain", job="worker", count=len(world.workers))
    world.train_for(3.0)


ACTS = (
    rest,
    crash_of_every_third_host,
    end_of_every_third_worker,
    connections_lost_by_every_third_worker,
    workers_that_return_while_nothing_trains,
    cut_of_every_third_host,
    restart_of_the_coordinator,
    stop,
    restart,
    drain_and_undrain,
    scale,
)


def measured(strategy: str, hosts: int, act: Act) -> dict[str, int]:
    world = fleet(strategy, hosts)
    lines = executed(lambda: act(world))
    return {"lines executed": lines, "bytes of cluster.json": len(json.dumps(world.data)), "orders": len(world.sent)}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("strategy", ["async-ps", "collective"])
def test_four_times_as_many_hosts_cost_four_times_as_much(strategy: str, act: Act) -> None:
    few, many = measured(strategy, SMALL, act), measured(strategy, LARGE, act)
    assert {what: count for what, count in many.items() if count > MOST * few[what]} == {}, (few, many)


def test_start_of_four_times_as_many_hosts_costs_four_times_as_much() -> None:
    few, many = (executed(partial(fleet, "async-ps", count)) for count in (SMALL, LARGE))
    assert many <= MOST * few


def progress_during_a_recovery(hosts: int) -> int:
    """The cost of a message about one task, when all are back after a loss and none has made a step."""
    world = fleet("collective", hosts)
    world.die("worker:1")
    world.until(lambda: all(task.entry["attempt"] == 2 and task.entry["ready"] for task in world.tasks.values()))
    world.run_for(1.0)
    message = made(TaskProgress, type="progress", serial=10_000, tasks={"worker:2": {}})
    return executed(lambda: world.coordinator.receive("h2", message, world.now, world.wall))


def test_message_about_progress_costs_the_same_however_many_hosts_recover() -> None:
    assert progress_during_a_recovery(LARGE) <= 1.3 * progress_during_a_recovery(SMALL)
