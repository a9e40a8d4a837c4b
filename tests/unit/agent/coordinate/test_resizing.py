"""Tasks that train together start again with more or fewer of them: by `dtctl scale`, or as a host is given up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from dtctl.agent.coordinate.coordinator import Coordinator
from dtctl.agent.records.spec import DRIFT
from dtctl.agent.run import drains
from dtctl.agent.run.gang import may_scale, ranges, tasks_in
from dtctl.agent.supervise import task as supervised
from tests.reasons import reason_of, warnings_of
from tests.unit.agent.coordinate.slot_world import SlotWorld, SlowAttempt
from tests.unit.agent.coordinate.test_draining import ANNA, held, shuts_down, starts_again
from tests.unit.agent.coordinate.world import World, running

PLACES = {"chief:0": "a", "worker:0": "b", "worker:1": "c", "worker:2": "d"}
WITH_PS = {"ps:0": "a", **PLACES}
GIVEN_UP = {"host_timeout_s": 100.0}


def of(strategy: str = "collective", **fields: Any) -> World:
    others = {"collective": {}, "kvstore": {"scheduler:0": "a", "server:0": "a"}}
    places = {**others.get(strategy, {"ps:0": "a"}), **PLACES}
    return running(World(strategy, places, resizes=strategy != "async-ps", **fields))


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ("", ""),
        ("worker:2", "worker:2"),
        ("worker:2 worker:3 worker:4 worker:9 worker:10", "worker:2-4 worker:9-10"),
        ("chief:1 worker:2 worker:1", "chief:1 worker:2 worker:1"),
    ],
)
def test_ranges_name_each_task_once(tasks: str, words: str) -> None:
    assert ranges(tasks.split()) == words.split()
    assert [*tasks_in(words.split())] == tasks.split()


def lists(world: World) -> dict[str, list[str]]:
    """Who takes no part, as each task that runs knows since its start."""
    there = [task for task in world.tasks if world.places[task] not in world.crashed]
    return {task: [*tasks_in(world.tasks[task].without)] for task in there if world.states[task] == "running"}


def each(tasks: Iterable[str], out: list[str]) -> dict[str, list[str]]:
    return dict.fromkeys(tasks, out)


def reasons(world: World) -> list[str]:
    return [reason_of(line) for line in world.events if line["kind"] == "decision"]


@pytest.mark.parametrize("strategy", ["collective", "sync-ps", "ps-strategy", "in-graph", "kvstore"])
def test_scaling_restarts_all_with_the_list_of_those_that_take_part(strategy: str) -> None:
    world = of(strategy)
    world.request("drain", job="worker", count=1, by=ANNA)
    world.run_for(15.0)
    out = ["worker:1", "worker:2"]
    assert held(world) == out
    assert lists(world) == {task: out for task in world.tasks if task not in out}
    assert (world.condition, reason_of(world.data["condition"])) == (
        "Running",
        f"{len(world.tasks) - 2} of {len(world.tasks) - 2} tasks run",
    )
    assert reasons(world)[-1] == "all tasks that train restart because their number changes: 2 of 4 workers train"
    world.request("undrain", job="worker", count=3, by=ANNA)
    world.run_for(15.0)
    assert lists(world) == each(world.tasks, [])
    assert set(world.attempts.values()) == {2, 3}, "those that were held have had one attempt less"
    assert (world.data["restarts"], world.mended.count("checkpoints") < 3) == (0, True)


def test_a_lost_task_restarts_those_alone_that_take_part() -> None:
    world = of()
    world.request("drain", job="worker", count=2, by=ANNA)
    world.run_for(15.0)
    world.die("worker:0")
    world.run_for(15.0)
    assert lists(world) == each(["chief:0", "worker:0", "worker:1"], ["worker:2"])
    assert world.attempts["worker:2"] == 1


@pytest.mark.parametrize("peers_fail", [True, False])
@pytest.mark.parametrize("strategy", ["collective", "in-graph", "kvstore"])
def test_others_train_without_a_host_that_was_given_up_and_with_it_when_it_is_back(
    strategy: str, peers_fail: bool
) -> None:
    world = of(strategy, min_workers=3, recovery=GIVEN_UP)
    world.crash("d")
    if peers_fail:
        world.die("worker:0")
    world.run_for(95.0)
    assert not any(task.without for task in world.tasks.values()), "it may come back"
    world.run_for(20.0)
    assert lists(world) == each([task for task in world.tasks if task != "worker:2"], ["worker:2"])
    said = "worker:2 left out: d has been unreachable for 100 s; 3 of 4 workers train"
    assert said in reasons(world)
    assert (world.condition, warnings_of(world.data)) == ("Running", [said])
    world.boot("d")
    world.run_for(55.0)
    assert held(world) == ["worker:2"], "it is awaited for a minute"
    world.run_for(25.0)
    assert lists(world) == each(world.tasks, [])
    assert (world.condition, warnings_of(world.data)) == ("Running", [])


def test_below_the_minimum_the_run_fails_as_without() -> None:
    world = of(min_workers=4, recovery=GIVEN_UP)
    world.crash("d")
    world.run_for(110.0)
    assert (world.condition, reason_of(world.data["condition"])) == ("Failed", "d has been unreachable for 100 s")


@pytest.mark.parametrize("strategy", ["collective", "sync-ps", "async-ps"])
def test_the_hosts_of_the_lead_and_of_ps_cannot_be_left_out(strategy: str) -> None:
    world = of(strategy, min_workers=1, recovery=GIVEN_UP)
    assert not world.coordinator._draining.may_leave_out("a")
    assert world.coordinator._draining.may_leave_out("d")


def test_workers_of_async_ps_go_on_untouched() -> None:
    world = of("async-ps", min_workers=2, recovery=GIVEN_UP)
    world.crash("d")
    world.run_for(110.0)
    assert world.condition == "Running"
    assert held(world) == ["worker:2"]
    world.boot("d")
    world.run_for(90.0)
    assert {**world.attempts, "worker:2": 1} == dict.fromkeys(WITH_PS, 1)
    assert (world.states["worker:2"], held(world)) == ("running", [])


def test_tasks_stopped_by_a_left_out_hosts_agent_are_no_request_of_a_person() -> None:
    world = of("async-ps", min_workers=2, recovery=GIVEN_UP)
    intents = world.coordinator.view.intents
    own = intents["worker:2"].copy()
    world.cut.add("d")
    world.run_for(120.0)
    assert (held(world), intents["worker:2"]["version"]) == (["worker:2"], own["version"] + 1)
    own["want"], own["by"], own["version"] = "stop", "host_timeout", own["version"] + 1
    world.coordinator._merge_intents("d", {"worker:2": own}, world.now)
    assert held(world) == ["worker:2"]


@pytest.mark.parametrize(("fewest", "condition"), [(6, "Failed"), (5, "Running")])
def test_hosts_that_are_lost_together_count_together(fewest: int, condition: str) -> None:
    places = {f"worker:{index}": host for index, host in enumerate("abcdefg")}
    world = running(World("collective", places, resizes=True, min_workers=fewest, recovery=GIVEN_UP))
    for host in "cd":
        world.crash(host)
    world.run_for(120.0)
    assert world.condition == condition


def test_a_host_whose_tasks_are_too_many_may_be_switched_off() -> None:
    world = of(recovery=GIVEN_UP)
    world.request("drain", job="worker", count=2, by=ANNA)
    world.run_for(15.0)
    world.crash("d")
    world.run_for(150.0)
    assert (world.condition, warnings_of(world.data)) == ("Running", [])


@pytest.mark.parametrize(("count", "can"), [(3, True), (2, True), (1, False), (0, False)])
def test_scaling_counts_who_is_left_out_already(count: int, can: bool) -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    world.crash("d")
    world.run_for(120.0)
    view = world.coordinator.view
    too_many = [*drains.beyond("worker", count, ANNA, view.present)]
    assert may_scale(view.spec, "worker", too_many, view.intents) == can


def test_coordinator_without_a_majority_leaves_out_no_host(monkeypatch: pytest.MonkeyPatch) -> None:
    world = of(min_workers=4, recovery=GIVEN_UP)
    monkeypatch.setattr(Coordinator, "may_start", False)
    world.crash("d")
    world.run_for(150.0)
    assert world.condition != "Failed"


def test_a_spare_that_takes_a_place_late_is_not_left_out() -> None:
    recovery = {"replace_s": 60.0, **GIVEN_UP}
    world = SlotWorld("collective", PLACES, "s", resizes=True, min_workers=3, recovery=recovery)
    running(world)
    for host in ("s", "d"):
        world.crash(host)
    world.run_for(140.0)
    world.boot("s")
    world.run_for(150.0)
    assert lists(world) == each(PLACES, [])


def test_a_host_that_comes_and_goes_is_not_taken_back() -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    world.cut.add("d")
    world.run_for(120.0)
    attempts = world.attempts
    for _ in range(3):
        world.cut.discard("d")
        world.run_for(50.0)
        world.cut.add("d")
        world.run_for(20.0)
    assert {**world.attempts, "worker:2": 1} == attempts


def test_the_next_coordinator_goes_on_with_those_that_take_part() -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    world.crash("d")
    world.run_for(120.0)
    attempts = world.attempts
    world.restart_coordinator(rebooted=False)
    world.run_for(60.0)
    assert world.attempts == attempts
    world.boot("d")
    world.run_for(90.0)
    assert lists(world) == each(PLACES, [])


def test_a_run_succeeds_with_those_that_take_part() -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    world.crash("d")
    world.run_for(120.0)
    for task in ("chief:0", "worker:0", "worker:1"):
        world.die(task, code=0)
    world.run_for(5.0)
    assert world.condition == "Succeeded"


@pytest.mark.parametrize("is_away", [True, False])
def test_others_train_without_a_drained_host_until_it_is_undrained(is_away: bool) -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    if is_away:
        world.crash("d")
        world.run_for(120.0)
    world.request("drain", host="d", by=ANNA)
    world.run_for(15.0)
    assert lists(world) == each(["chief:0", "worker:0", "worker:1"], ["worker:2"])
    assert (world.condition, warnings_of(world.data)) == ("Running", [])
    if is_away:
        world.boot("d")
    world.run_for(200.0)
    assert world.attempts["chief:0"] == 2, "nobody is taken back, or given up"
    world.request("undrain", host="d", by=ANNA)
    world.run_for(15.0)
    assert lists(world) == each(PLACES, [])


def test_a_host_that_shuts_down_pauses_the_others_until_it_is_given_up() -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    shuts_down(world, "c")
    world.run_for(30.0)
    assert world.states["chief:0"] == "pending"
    world.run_for(90.0)
    assert lists(world) == each(["chief:0", "worker:0", "worker:2"], ["worker:1"])
    starts_again(world, "c")
    world.run_for(90.0)
    assert lists(world) == each(PLACES, [])


def test_a_drained_host_pauses_those_that_take_part() -> None:
    world = of(min_workers=3, recovery=GIVEN_UP)
    world.crash("d")
    world.run_for(120.0)
    world.request("drain", host="c", by=ANNA)
    world.run_for(15.0)
    assert world.condition == "Suspended"
    world.request("undrain", host="c", by=ANNA)
    world.run_for(15.0)
    assert lists(world) == each(["chief:0", "worker:0", "worker:1"], ["worker:2"])


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 100))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_others_start_when_nothing_of_a_cut_off_host_trains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks run up to a quarter slower, trainers save for as long as they may, and the cut comes and goes."""
    monkeypatch.setattr(supervised, "Attempt", SlowAttempt)
    chances = random.Random(seed)
    recovery = {"replace_s": None, "host_timeout_s": 60.0}
    places = {"worker:0": "a", "worker:1": "b", "worker:2": "c"}
    grace_s = chances.choice([0.0, 3.0, 10.0])
    world = SlotWorld("collective", places, resizes=True, min_workers=2, recovery=recovery, grace_s=grace_s)
    running(world)
    for host in world.coordinator.view.hosts:
        world.rates[host] = chances.choice([1.0, 0.9, 1 / DRIFT])
        world.fences[host] = world._fence(host)
    for _ in range(chances.randint(0, 3)):
        world.cut.add("b")
        world.run_for(chances.uniform(1.0, 15.0))
        world.cut.discard("b")
        world.run_for(chances.uniform(1.0, 5.0))
    world.cut.add("b")
    if chances.random() < 0.5:
        world.run_for(chances.uniform(1.0, 50.0))
        world.elect("c")
    for _ in range(800):
        world.tick()
        assert not (world.running_on("worker:0") and world.tasks["worker:0"].without and world.running_on("worker:1"))
    assert lists(world) == each(["worker:0", "worker:2"], ["worker:1"])
    world.cut.discard("b")
    world.run_for(90.0)
    assert lists(world) == each(places, [])
