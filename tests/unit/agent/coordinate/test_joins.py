"""Hosts that are new in the cluster file join a live run as spares."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate.view import first_view, is_of, take_in_joined
from dtctl.agent.records.kinds import InvalidValue, checked, made
from dtctl.agent.records.spec import HOLD_S, Moved, Spare, hosts_of, kept_by_coordinator
from dtctl.agent.run import drains, gang
from tests.reasons import reason_of
from tests.unit.agent.coordinate.slot_world import SlotWorld
from tests.unit.agent.coordinate.slots import REPLACE_S, on, with_spares
from tests.unit.agent.coordinate.test_moving import PLACES, ready, restarted

NEW: Any = {
    "address": "n",
    "addresses": {task: f"n:{2222 + index}" for index, task in enumerate(PLACES)},
    "tasks": [],
}


def running(*spares: str, **fields: Any) -> SlotWorld:
    world = SlotWorld("async-ps", PLACES, *spares, movable=True, **fields)
    world.until(lambda: ready(world))
    world.run_for(1.0)
    return world


def joined(world: SlotWorld, **fields: Any) -> SlotWorld:
    world.request("join", joins={"n": NEW}, replace_s=REPLACE_S, **fields)
    world.until(lambda: "n" in world.data["hosts"] and world.data["hosts"]["n"]["connected"], 20.0)
    return world


def test_a_new_host_is_a_spare_as_soon_as_its_agent_connects_and_no_task_restarts() -> None:
    world = joined(running(recovery={"replace_s": None}))
    assert hosts_of(world.spec)[-1] == "n"
    assert not world.data["hosts"]["n"]["absent"]
    assert (restarted(world), world.condition) == ([], "Running")
    assert "n to join" in [reason_of(line) for line in world.events]
    assert "n has joined the run, which had begun without it" in [reason_of(line) for line in world.events]


@pytest.mark.parametrize("replace_s", [None, REPLACE_S])
def test_it_takes_the_tasks_of_a_lost_host_also_where_the_run_began_without_spares(replace_s: float | None) -> None:
    world = joined(running(recovery={"replace_s": replace_s}))
    world.crash("e")
    world.until(lambda: world.data["moved"]["slots"] == {"e": "n"} and ready(world), REPLACE_S + 30.0)
    assert world.places["worker:1"] == "n"
    assert restarted(world) == ["worker:1"]


def test_the_next_coordinator_knows_it() -> None:
    world = joined(running())
    world.crash("c")
    world.run_for(20.0)
    world.elect("a")
    assert "n" in world.data["hosts"]
    world.until(lambda: world.data["moved"]["slots"] == {"c": "n"} and ready(world), REPLACE_S + 30.0)


def test_it_is_drained_as_any_spare() -> None:
    world = joined(running())
    world.request("drain", host="n")
    world.crash("e")
    world.run_for(REPLACE_S + 30.0)
    assert world.data["moved"]["slots"] == {}
    assert any("n" in text and "drained" in text for text in world.decisions)


def test_without_a_lease_no_host_joins() -> None:
    world = running()
    world.lease = False
    world.request("join", joins={"n": NEW}, replace_s=REPLACE_S)
    assert world.data["moved"]["number"] == 0
    refused = "n cannot join the run: its coordinator has no majority of the voting hosts"
    assert refused in [reason_of(line) for line in world.coordinator.history]


def test_a_second_request_for_the_same_host_changes_nothing() -> None:
    world = joined(running())
    number = world.data["moved"]["number"]
    world.request("join", joins={"n": {**NEW, "address": "elsewhere"}}, replace_s=1.0)
    assert world.data["moved"]["number"] == number
    assert world.data["moved"]["joined"]["n"] == NEW


SPEC = with_spares("async-ps", PLACES, "s", movable=True)


def joins(number: int = 1, /, **hosts: Any) -> Moved:
    return made(Moved, number=number, joined=hosts, replace_s=70.0)


@pytest.mark.parametrize(
    ("host", "record"),
    [
        ("a", NEW),
        ("s", NEW),
        ("z", NEW),
        ("n", {"address": "n", "addresses": {"worker:9": "n:1"}}),
    ],
)
def test_a_host_that_cannot_be_new_does_not_join(host: str, record: Any) -> None:
    spec = with_spares("async-ps", PLACES, "s", movable=True, arbiters=["z"])
    with pytest.raises(InvalidValue):
        gang.with_moves(spec, joins(**{host: record}))


def test_no_host_joins_a_run_whose_tasks_have_fixed_addresses() -> None:
    with pytest.raises(InvalidValue):
        gang.with_moves(with_spares("async-ps", PLACES, "s"), joins(n=NEW))
    world = SlotWorld("async-ps", PLACES)
    world.until(lambda: ready(world))
    world.request("join", joins={"n": NEW})
    assert world.data["moved"]["number"] == 0


def test_a_host_joins_with_the_time_after_which_it_replaces_others() -> None:
    assert gang.with_moves(SPEC, joins(n=NEW))["recovery"]["replace_s"] == REPLACE_S
    none: Any = {**SPEC, "recovery": {**SPEC["recovery"], "replace_s": None}}
    assert gang.with_moves(none, joins(n=NEW))["recovery"]["replace_s"] == 70.0
    assert gang.with_moves(none, made(Moved))["recovery"]["replace_s"] is None


def test_a_host_that_joins_decides_alone_that_it_is_kept() -> None:
    spec: Any = {**on(SPEC, "s"), "moved": joins(s=SPEC["spares"]["s"])}
    assert (kept_by_coordinator(on(SPEC, "s")), kept_by_coordinator(spec)) == (True, False)


def test_a_view_from_before_or_after_the_join_is_of_the_run() -> None:
    after = gang.with_moves(SPEC, joins(n=NEW))
    old, new = first_view(SPEC, 1.0), first_view(after, 1.0)
    assert all(is_of(view, spec) for view in (old, new) for spec in (SPEC, after))
    strange: Any = {**old, "hosts": {**old["hosts"], "x": old["hosts"]["a"]}}
    assert not is_of(strange, after)
    take_in_joined(old, after)
    assert old["hosts"]["n"]["absent"]
    assert new["hosts"]["n"]["absent"]


def test_a_host_away_during_the_join_holds_its_tasks_before_another_starts_them() -> None:
    """It began without spares, so it does not know when it would be replaced, and ends nothing by itself."""
    world = running(recovery={"replace_s": None}, hold_s=HOLD_S)
    world.cut.add("e")
    world.run_for(5.0)
    joined(world)
    while "n" not in world.running_on("worker:1"):
        world.tick()
        assert world.now < 200.0, world.events
    assert world.fences["e"].grace_s(world.now) is None
    assert world.fences["e"].holds(world.now), "what runs on e is stopped"
    world.cut.discard("e")
    world.until(lambda: world.running_on("worker:1") == ["n"] and ready(world), 60.0)


WORKERS = {"worker:0": "a", "worker:1": "b", "worker:2": "c"}
WITH_TASK: Any = {
    "address": "n",
    "addresses": {task: f"n:{2222 + index}" for index, task in enumerate(WORKERS)},
    "tasks": [{"task": "worker:3", "host": "n", "address": "n:2230", "role": "worker", "scope": "gang"}],
}


def grown(world: SlotWorld) -> SlotWorld:
    world.request("join", joins={"n": checked(Spare, WITH_TASK)}, replace_s=REPLACE_S)
    world.until(lambda: "n" in world.data["hosts"] and world.data["hosts"]["n"]["connected"], 20.0)
    world.run_for(3.0)
    return world


def training(**fields: Any) -> SlotWorld:
    world = SlotWorld("collective", WORKERS, movable=True, resizes=True, **fields)
    world.until(lambda: ready(world))
    world.run_for(1.0)
    return world


def scaled(world: SlotWorld, count: int) -> SlotWorld:
    world.request("drain" if count < 4 else "undrain", job="worker", count=count, by="anna@desk")
    world.run_for(10.0)
    return world


def test_a_host_that_joins_may_bring_a_task_which_scale_starts_and_stops() -> None:
    world = grown(training())
    assert (restarted(world), world.condition, world.states["worker:3"]) == ([], "Running", "pending")
    assert drains.scaled_down("worker", world.data["intents"]) == ["worker:3"]
    scaled(world, 4)
    assert world.attempts == {"worker:0": 2, "worker:1": 2, "worker:2": 2, "worker:3": 1}
    assert (set(world.states.values()), world.condition) == ({"running"}, "Running")
    assert not any(task.without for task in world.tasks.values())
    scaled(world, 3)
    assert (world.states["worker:3"], world.tasks["worker:0"].without) == ("pending", ["worker:3"])
    world.elect("b")
    world.run_for(5.0)
    assert drains.scaled_down("worker", world.data["intents"]) == ["worker:3"]


def test_a_host_joins_a_job_that_is_scaled_down_as_more_of_its_surplus() -> None:
    world = grown(scaled(training(), 2))
    assert drains.scaled_down("worker", world.data["intents"]) == ["worker:2", "worker:3"]
    assert world.attempts["worker:0"] == 2, "once, for the scale"
    scaled(world, 4)
    assert set(world.states.values()) == {"running"}


def test_a_host_with_a_surplus_task_takes_those_of_a_lost_host() -> None:
    world = grown(training())
    world.crash("c")
    world.until(lambda: world.data["moved"]["slots"] == {"c": "n"}, REPLACE_S + 30.0)
    world.run_for(20.0)
    assert (world.places["worker:2"], world.states["worker:2"]) == ("n", "running")
    assert world.states["worker:3"] == "pending"


def test_a_joined_host_that_dies_leaves_the_run_as_it_was_if_scale_has_not_used_it() -> None:
    world = grown(training())
    world.crash("n")
    world.run_for(2 * REPLACE_S)
    assert (restarted(world), world.condition) == ([], "Running")


def test_a_join_that_was_cancelled_leaves_its_task_surplus() -> None:
    world = grown(training())
    world.coordinator._forget("n")
    assert drains.scaled_down("worker", world.data["intents"]) == ["worker:3"]
    world.run_for(5.0)
    assert (restarted(world), world.states["worker:3"]) == ([], "pending")


@pytest.mark.parametrize(
    ("field", "value"),
    [("task", "worker:4"), ("task", "worker:2"), ("task", "ps:0"), ("host", "a"), ("role", "lead"), ("slot", "a")],
)
def test_a_task_that_cannot_be_new_does_not_join(field: str, value: str) -> None:
    spec = with_spares("collective", WORKERS, movable=True, resizes=True)
    wrong: Any = {**WITH_TASK, "tasks": [{**WITH_TASK["tasks"][0], field: value}]}
    with pytest.raises(InvalidValue):
        gang.with_moves(spec, joins(n=checked(Spare, wrong)))


def test_a_task_joins_no_run_whose_tasks_have_fixed_lists_of_addresses() -> None:
    with pytest.raises(InvalidValue):
        gang.with_moves(with_spares("async-ps", WORKERS, movable=True), joins(n=checked(Spare, WITH_TASK)))
