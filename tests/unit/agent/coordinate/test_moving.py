"""Spares that take the places of lost hosts: which, when, what is restarted, and never two of a task at once."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dtctl.agent.coordinate.election import LEASE_S
from dtctl.agent.records.spec import DRIFT
from dtctl.agent.run import drains, intents
from dtctl.agent.supervise import task as supervised
from tests.reasons import reason_of
from tests.unit.agent.coordinate.slot_world import SlotWorld, SlowAttempt
from tests.unit.agent.coordinate.slots import REPLACE_S

PLACES = {"ps:0": "a", "chief:0": "c", "worker:0": "d", "worker:1": "e"}
GANG = {"worker:0": "a", "worker:1": "b", "worker:2": "c"}
SOON_S = REPLACE_S + 15.0


def made(strategy: str, *spares: str, **fields: Any) -> SlotWorld:
    places = GANG if strategy == "collective" else PLACES
    unseen = fields.pop("unseen", [])
    world = SlotWorld(strategy, places, *(spares or ("s", "t")), **fields)
    world.unseen = dict.fromkeys(spares, unseen)
    world.until(lambda: all(task.entry["ready"] for task in world.tasks.values()))
    world.run_for(1.0)
    return world


def ready(world: SlotWorld) -> bool:
    return all(task.entry["ready"] and task.entry["state"] == "running" for task in world.tasks.values())


def restarted(world: SlotWorld) -> list[str]:
    return [task for task, attempt in world.attempts.items() if attempt > 1]


@pytest.mark.parametrize(
    ("strategy", "lost", "moved", "again"),
    [
        ("async-ps", "e", ["worker:1"], ["worker:1"]),
        ("async-ps", "a", ["ps:0"], ["ps:0"]),
        ("sync-ps", "a", ["ps:0"], list(PLACES)),
        ("ps-strategy", "a", ["ps:0"], ["ps:0", "chief:0"]),
        ("collective", "b", ["worker:1"], list(GANG)),
    ],
)
def test_lost_host_is_replaced_and_dependent_tasks_are_restarted(
    strategy: str, lost: str, moved: list[str], again: list[str]
) -> None:
    world = made(strategy)
    world.crash(lost)
    world.run_for(REPLACE_S - 5.0)
    assert world.data["moved"]["number"] == 0
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), 30.0)
    assert world.data["moved"]["slots"] == {lost: "s"}
    assert [task for task, host in world.places.items() if host == "s"] == moved
    assert restarted(world) == again
    assert {world.attempts[task] for task in moved} == {2}, "attempts are numbered on"
    assert any(text.startswith(f"{lost} has been unreachable for ") for text in world.decisions)
    world.run_for(5.0)
    assert world.condition == "Running"


@pytest.mark.parametrize(
    ("strategy", "lost", "again"),
    [("async-ps", "c", ["chief:0"]), ("collective", "a", list(GANG))],
)
def test_the_host_of_the_lead_that_coordinates_is_replaced_after_another_was_elected(
    strategy: str, lost: str, again: list[str]
) -> None:
    world = made(strategy)
    world.crash(lost)
    world.run_for(20.0)
    world.elect("s")
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), SOON_S)
    assert world.data["moved"]["slots"] == {lost: "s"}
    assert restarted(world) == again


def test_a_task_whose_address_others_are_started_with_moves_with_all_of_them() -> None:
    """A ps of TensorFlow fetches what a worker sends, at the address that it was started with."""
    world = SlotWorld("async-ps", PLACES, "s", "t")
    for member in world.raw["roster"]:
        member["addressed"] = True
    world.until(lambda: ready(world))
    world.crash("e")
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), SOON_S)
    assert restarted(world) == list(PLACES)


def test_a_task_that_is_too_many_moves_with_its_host_and_waits_there() -> None:
    world = SlotWorld("async-ps", {**PLACES, "worker:2": "e"}, "s", "t")
    world.until(lambda: ready(world))
    world.request("drain", job="worker", count=2)
    world.run_for(2.0)
    world.crash("e")
    world.until(lambda: world.data["moved"]["number"] == 1 and world.states["worker:1"] == "running", SOON_S)
    world.run_for(30.0)
    assert {task: world.places[task] for task in ("worker:1", "worker:2")} == {"worker:1": "s", "worker:2": "s"}
    assert world.states["worker:2"] == "pending"
    assert world.condition == "Running"
    world.request("undrain", job="worker", count=3)
    world.until(lambda: ready(world), 10.0)


@pytest.mark.parametrize(
    ("strategy", "lost", "again"),
    [("async-ps", "e", ["worker:1"]), ("ps-strategy", "e", list(PLACES)), ("collective", "b", list(GANG))],
)
def test_a_host_that_shuts_down_and_does_not_come_back_is_replaced(strategy: str, lost: str, again: list[str]) -> None:
    """What it held, with those that cannot continue without it, runs again."""
    world = made(strategy)
    for task in world._on(lost):
        sim = world.tasks[task]
        sim.intent = intents.to_leave({**world.spec, "host": lost}, {task: sim.intent}, {task: sim.entry})[task]
    world.run_for(5.0)
    assert drains.is_drained(world.data["intents"]["worker:1"])
    world.crash(lost)
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), SOON_S)
    assert world.data["moved"]["slots"] == {lost: "s"}
    assert restarted(world) == again


def test_a_spare_that_dies_while_it_takes_a_place_is_replaced_itself() -> None:
    world = made("collective")
    world.crash("b")
    world.until(lambda: world.data["moved"]["number"] == 1, SOON_S)
    world.crash("s")
    world.until(lambda: world.data["moved"]["number"] == 2 and ready(world), SOON_S)
    assert world.data["moved"]["slots"] == {"b": "t"}


def test_a_spare_whose_disk_is_full_never_begins_and_is_passed_over() -> None:
    world = made("async-ps")
    world.full.add("s")
    world.crash("e")
    world.until(lambda: world.data["moved"]["number"] == 2 and ready(world), 2 * SOON_S)
    assert world.data["moved"]["slots"] == {"e": "t"}
    assert world.running_on("worker:1") == ["t"]


def test_losses_one_after_the_other_fill_idle_spares_first_and_then_the_others() -> None:
    world = made("async-ps", arbiters=["v"])
    for number, host in enumerate(("e", "d", "a"), 1):
        world.crash(host)
        world.until(lambda number=number: world.data["moved"]["number"] == number and ready(world), SOON_S)  # type: ignore[misc]
    assert world.data["moved"]["slots"] == {"e": "s", "d": "t", "a": "s"}
    assert world.condition == "Running"


def test_hosts_that_are_lost_together_are_replaced_together() -> None:
    world = made("sync-ps")
    world.crash("e")
    world.crash("a")
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), SOON_S)
    assert world.data["moved"]["slots"] == {"a": "s", "e": "t"}
    assert {world.attempts[task] for task in PLACES} == {2}


def test_a_host_that_is_lost_while_another_is_replaced_is_replaced_in_its_own_time() -> None:
    world = made("async-ps")
    world.crash("e")
    world.run_for(REPLACE_S - 20.0)
    world.crash("a")
    world.run_for(REPLACE_S - 3.0)
    assert world.data["moved"]["slots"] == {"e": "s"}
    world.run_for(6.0)
    assert world.data["moved"]["slots"] == {"e": "s", "a": "t"}
    world.until(lambda: ready(world))


@pytest.mark.parametrize(("resumed", "counted_s"), [({}, 40.0), ({"rebooted": True}, 0.0), ({"before": "s"}, 0.0)])
def test_absence_is_not_counted_on_if_another_coordinator_was_possible(resumed: Any, counted_s: float) -> None:
    world = made("async-ps")
    world.data["hosts"]["a"]["silent_s"] = 40.0
    world._take("c")
    world.coordinator.resume(world.now, world.wall, **resumed)
    assert world.now - world.coordinator.contacts.away["a"] == counted_s


@pytest.mark.parametrize("back_after_s", [20.0, REPLACE_S - 4.0, REPLACE_S + 1.0, REPLACE_S + 40.0])
@pytest.mark.parametrize("strategy", ["async-ps", "collective"])
def test_reconnected_host_keeps_its_tasks_or_learns_their_host(strategy: str, back_after_s: float) -> None:
    world = made(strategy)
    lost = "e" if strategy == "async-ps" else "b"
    task = "worker:1"
    world.cut.add(lost)
    for _ in range(int(back_after_s / 0.25)):
        world.tick()
        assert len(world.running_on(task)) <= 1
    world.cut.discard(lost)
    for _ in range(200):
        world.tick()
        assert len(world.running_on(task)) <= 1
    assert ready(world)
    is_moved = back_after_s > REPLACE_S
    assert world.running_on(task) == ["s" if is_moved else lost]
    reported = [reason_of(line) for line in world.events if line["kind"] == "contact"]
    assert (f"{lost} is back; its tasks are on s now" in reported) is is_moved
    if is_moved:
        world.crash("s")
        world.until(lambda: world.data["moved"]["number"] == 2 and ready(world), SOON_S)
        assert world.data["moved"]["slots"] == {}, "it takes its own place again"


def test_a_host_that_was_cut_off_for_a_while_goes_on_from_where_its_tasks_are() -> None:
    """Its tasks have ended, and those that cannot continue without them start again with them."""
    world = made("collective")
    world.cut.add("b")
    world.run_for(REPLACE_S / DRIFT)
    assert world.running_on("worker:1") == []
    world.cut.discard("b")
    world.until(lambda: ready(world) and restarted(world) == list(GANG), 60.0)
    assert world.data["moved"]["number"] == 0


@pytest.mark.parametrize(
    ("unseen", "fields", "moves", "why"),
    [
        ([], {}, True, ""),
        (["/ckpt"], {}, False, "s does not see /ckpt as the lead's host does"),
        (None, {}, False, "it is not known whether s sees the checkpoints"),
        (["/ckpt"], {"keeps_checkpoints_by_url": True}, True, ""),
    ],
)
@pytest.mark.parametrize(("lost", "needs"), [("a", True), ("e", False)])
def test_tasks_move_to_where_the_checkpoints_are_seen(
    unseen: list[str] | None, fields: Any, moves: bool, why: str, lost: str, needs: bool
) -> None:
    world = made("async-ps", "s", unseen=unseen, **fields)
    world.crash(lost)
    world.run_for(SOON_S)
    assert bool(world.data["moved"]["number"]) is (moves or not needs)
    warned = [reason_of(one) for one in world.data["alerts"] if one["topic"] == "no_spare"]
    assert warned == ([f"no spare can take the tasks of {lost}, which is unreachable: {why}"] if why and needs else [])
    if warned:
        world.boot(lost)
        world.until(lambda: ready(world) and not world.data["alerts"], 30.0)


def drain(world: SlotWorld) -> None:
    world.request("drain", host="e")
    world.run_for(20.0)
    world.crash("e")


def no_lease(world: SlotWorld) -> None:
    world.crash("e")
    world.lease = False


def stop_task(world: SlotWorld) -> None:
    world.request("stop", ["worker:1"])
    world.run_for(20.0)
    world.crash("e")


def drain_spares(world: SlotWorld) -> None:
    for spare in ("s", "t"):
        world.request("drain", host=spare)
    world.crash("e")


def spares_away(world: SlotWorld) -> None:
    world.crash("e")
    world.crash("s")
    world.crash("t")


@pytest.mark.parametrize("situation", [drain, no_lease, stop_task, spares_away, drain_spares])
def test_no_host_takes_over(situation: Any) -> None:
    world = made("async-ps")
    situation(world)
    world.run_for(3 * REPLACE_S)
    assert world.data["moved"]["number"] == 0


def test_a_spare_that_was_drained_takes_a_place_after_undrain() -> None:
    world = made("async-ps", arbiters=["v"])
    drain_spares(world)
    world.run_for(REPLACE_S + 5.0)
    (warned,) = [reason_of(one) for one in world.data["alerts"] if one["topic"] == "no_spare"]
    assert warned == "no spare can take the tasks of e, which is unreachable: s is drained; t is drained"
    assert world.coordinator.view.drained_hosts() == ["s", "t"]
    world.request("undrain", host="t")
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), 30.0)
    assert (world.data["moved"]["slots"], world.coordinator.view.drained_hosts()) == ({"e": "t"}, ["s"])


def test_drained_hosts_without_a_task_are_not_counted_as_missing() -> None:
    world = made("async-ps", arbiters=["v"])
    for host in ("s", "t", "v"):
        world.request("drain", host=host)
        world.crash(host)
    world.run_for(15.0)
    world.crash("e")
    world.run_for(15.0)
    assert world.coordinator._quorum.missing() > 0
    assert world.coordinator.may_start


def test_no_spare_takes_over_without_recovery_replace() -> None:
    world = made("async-ps", recovery={"replace_s": None})
    world.crash("e")
    world.run_for(600.0)
    assert world.data["moved"]["number"] == 0
    assert all(fence.grace_s(1e9) is None for fence in world.fences.values())


@pytest.mark.parametrize("after_s", [REPLACE_S - 2.0, REPLACE_S + 1.0, REPLACE_S + 3.0])
@pytest.mark.parametrize("what", ["stop", "stop task", "drain", "restart"])
def test_what_a_person_asks_in_the_middle_of_it_holds(what: str, after_s: float) -> None:
    world = made("collective")
    world.crash("b")
    world.run_for(after_s)
    if what == "stop":
        world.request("stop")
        world.until(lambda: world.condition == "Stopped" and not any(map(world.running_on, GANG)), 60.0)
        assert world.coordinator.over or "b" in world.crashed
    elif what == "stop task":
        world.request("stop", ["worker:1"])
        world.run_for(120.0)
        assert world.running_on("worker:1") == []
    elif what == "drain":
        world.request("drain", host="c")
        world.run_for(120.0)
        assert world.running_on("worker:2") == []
        assert drains.drained_hosts(world.data["intents"]) == ["c"]
        world.request("undrain", host="c")
        world.until(lambda: ready(world), 2 * SOON_S)
    else:
        world.request("restart", ["worker:2"])
        world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), SOON_S)


def test_a_run_that_ends_waits_for_no_spare() -> None:
    world = made("async-ps")
    world.crash("s")
    world.run_for(30.0)
    world.die("chief:0", code=0)
    world.until(lambda: world.condition == "Succeeded" and world.coordinator.over, 120.0)


def test_voters_stay_at_the_end_while_a_host_is_away_that_may_query_them() -> None:
    world = made("async-ps")
    world.crash("e")
    world.die("chief:0", code=0)
    world.until(lambda: world.condition == "Succeeded", 60.0)
    world.run_for(30.0)
    hosts = world.data["hosts"]
    assert [host for host in hosts if world.coordinator._book.is_over(host)] == []
    world.boot("e")
    world.until(lambda: world.coordinator.over, 120.0)
    assert world.coordinator._book.is_over("s")


def test_coordinator_without_a_majority_says_how_the_run_can_continue() -> None:
    world = made("collective")
    for host in ("b", "c", "s"):
        world.crash(host)
    world.lease = False
    world.run_for(2 * REPLACE_S)
    assert world.running_on("worker:0") == []
    assert reason_of(world.data["waits_for"]).endswith("dtctl up --replace    with a file of the hosts that are left")


@pytest.mark.parametrize(("strategy", "lead"), [("collective", "worker:0"), ("async-ps", "chief:0")])
def test_restart_starts_nothing_without_a_majority_where_others_may_have_taken_over(strategy: str, lead: str) -> None:
    world = made(strategy)
    for host in {"s", "t", *world.places.values()} - {world.places[lead]}:
        world.crash(host)
    world.lease = False
    world.run_for(2 * REPLACE_S)
    world.request("restart", [lead])
    world.run_for(REPLACE_S)
    assert world.running_on(lead) == []


@pytest.mark.parametrize(("terms", "waits"), [(1, False), (2, True)])
def test_absence_is_counted_from_zero_if_another_coordinator_was_possible(terms: int, waits: bool) -> None:
    """A coordinator in between may have heard the host, whose tasks go on from then."""
    world = made("async-ps")
    world.crash("e")
    world.run_for(REPLACE_S - 5.0)
    world.term += terms
    world.run_for(10.0)
    assert world.data["moved"]["number"] == (0 if waits else 1)
    world.until(lambda: world.data["moved"]["number"] == 1 and ready(world), SOON_S)


SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(8, 100))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_half_of_a_split_that_still_runs_ends_before_the_other_half_begins(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks run up to a quarter slower, trainers save for as long as they may, and the cut comes and goes."""
    monkeypatch.setattr(supervised, "Attempt", SlowAttempt)
    chances = random.Random(seed)
    world = made("collective", grace_s=chances.choice([0.0, 3.0, 10.0]))
    start = world.now
    rates = {host: chances.choice([1.0, 0.9, 1 / DRIFT]) for host in world.coordinator.view.hosts}
    for host, rate in rates.items():
        world.rates[host] = rate
        world.fences[host] = world._fence(host)
    own = world.spec["host"]
    assert own == "a"
    is_lead = chances.random() < 0.5
    lost = own if is_lead else "b"
    task = "worker:0" if is_lead else "worker:1"
    if chances.random() < 0.5:  # its place is taken meanwhile
        world.crash("c")
        world.run_for(chances.uniform(0.0, REPLACE_S))
    for _ in range(chances.randint(0, 3)):  # before it is cut for good
        world.cut.add(lost)
        world.run_for(chances.uniform(1.0, 15.0))
        world.cut.discard(lost)
        world.run_for(chances.uniform(1.0, 5.0))
    world.cut.add(lost)
    if is_lead:
        world.run_for(chances.uniform(0.0, LEASE_S / rates[own]))
        world.lease = False
        world.run_for(chances.uniform(0.25, 12.0))
        world.elect("s")
    for _ in range(int(4 * REPLACE_S / 0.25)):
        world.tick()
        assert len(world.running_on(task)) <= 1, (world.now - start, rates, world.running_on(task))
    assert world.data["moved"]["number"] >= 1
    world.cut.discard(lost)
    for _ in range(200):
        world.tick()
        assert len(world.running_on(task)) <= 1
    assert ready(world)
