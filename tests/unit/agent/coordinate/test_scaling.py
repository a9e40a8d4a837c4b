"""More or fewer tasks of a job run while the others train."""

from __future__ import annotations

import pytest

from tests.reasons import reason_of
from tests.unit.agent.coordinate.test_draining import ANNA, held
from tests.unit.agent.coordinate.world import World, running

PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "b", "worker:1": "c", "worker:2": "d", "worker:3": "d"}
OTHERS = ["ps:0", "chief:0", "worker:0", "worker:1"]


def scaled(world: World, count: int) -> World:
    world.request("drain" if count < 4 else "undrain", job="worker", count=count, by=ANNA)
    world.run_for(3.0)
    return world


def test_workers_stop_and_start_again_and_cost_the_others_no_step() -> None:
    world = scaled(running(World("async-ps", PLACES)), 2)
    assert held(world) == ["worker:2", "worker:3"]
    assert {world.states[task] for task in held(world)} == {"pending"}
    assert reason_of(world.tasks["worker:3"].entry) == "worker:3 is not needed: worker is scaled to 2 by anna@desk"
    assert world.condition == "Running"
    assert reason_of(world.data["condition"]) == "4 of 4 tasks run"
    scaled(world, 3)
    assert held(world) == ["worker:3"]
    scaled(world, 4)
    assert held(world) == []
    assert world.attempts == {**dict.fromkeys(OTHERS, 1), "worker:2": 2, "worker:3": 2}
    assert not any(task.entry["restarts"] for task in world.tasks.values()), "it counts in no budget"
    asked = [reason_of(line) for line in world.events if line["kind"] == "request"]
    assert asked == ["scale worker to 2", "scale worker to 3", "scale worker to 4"]


def test_a_run_begins_with_as_many_as_the_file_says() -> None:
    world = World("async-ps", PLACES, replicas={"worker": 2})
    world.coordinator.begin(world.wall)
    world.run_for(10.0)
    assert held(world) == ["worker:2", "worker:3"]
    assert world.attempts == {**dict.fromkeys(OTHERS, 1), "worker:2": 0, "worker:3": 0}
    assert world.condition == "Running"
    scaled(world, 4)
    assert world.attempts == dict.fromkeys(PLACES, 1)


def test_synchronous_tasks_begin_with_the_number_in_the_file_and_may_grow() -> None:
    places = {"worker:0": "a", "worker:1": "b", "worker:2": "c", "worker:3": "d"}
    world = World("collective", places, resizes=True, replicas={"worker": 2})
    world.coordinator.begin(world.wall)
    world.run_for(10.0)
    reported = [task.without for task in world.tasks.values() if task.entry["state"] == "running"]
    assert (reported, world.condition) == ([["worker:2-3"]] * 2, "Running")
    scaled(world, 4).run_for(10.0)
    assert world.attempts == {"worker:0": 2, "worker:1": 2, "worker:2": 1, "worker:3": 1}
    assert not any(task.without for task in world.tasks.values())


def test_the_number_stays_through_restarts_of_agents_and_the_coordinator() -> None:
    world = scaled(running(World("async-ps", PLACES)), 2)
    world.crash("d")
    world.restart_coordinator(rebooted=True)
    world.run_for(20.0)
    world.boot("d")
    world.run_for(60.0)
    assert held(world) == ["worker:2", "worker:3"]
    assert world.attempts["worker:2"] == 1
    assert world.condition == "Running"


@pytest.mark.parametrize("after", ["drain", "scale"])
def test_what_a_drained_host_and_the_number_hold_waits_for_both(after: str) -> None:
    world = scaled(running(World("async-ps", PLACES)), 2)
    world.request("drain", host="d", by=ANNA)
    world.run_for(2.0)
    if after == "drain":
        world.request("undrain", host="d", by=ANNA)
    else:
        scaled(world, 4)
    world.run_for(10.0)
    assert held(world) == ["worker:2", "worker:3"]
    assert {world.states[task] for task in held(world)} == {"pending"}


def test_a_run_that_every_worker_decides_succeeds_without_those_that_are_too_many() -> None:
    world = World("async-ps", PLACES)
    for member in world.spec["roster"]:
        member["decides"] = member["role"] in ("lead", "worker")
    scaled(running(world), 1)
    for task in ("chief:0", "worker:0"):
        world.die(task, code=0)
    world.run_for(5.0)
    assert world.condition == "Succeeded"


def test_a_task_that_was_lost_meanwhile_is_not_restarted_and_is_again_later() -> None:
    world = running(World("async-ps", PLACES))
    world.die("worker:3")
    scaled(world, 3)
    attempts = world.attempts
    world.run_for(30.0)
    assert world.states["worker:3"] == "pending"
    assert world.attempts == attempts
    scaled(world, 4)
    world.run_for(5.0)
    assert world.states["worker:3"] == "running"


def test_stop_ends_them_as_always() -> None:
    world = scaled(running(World("async-ps", PLACES)), 2)
    world.request("stop", by=ANNA)
    world.until(lambda: world.data["phase"] == "ended")
    assert set(world.states.values()) == {"stopped"}
