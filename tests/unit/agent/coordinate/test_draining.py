"""A host is drained while a run goes on: what that holds in which strategy, and how it comes back."""

from __future__ import annotations

import pytest

from dtctl.agent.coordinate.lifecycle import END_LIMIT_S
from dtctl.agent.coordinate.view import first_view
from dtctl.agent.records.reasons import fact, headline, read, why_of
from dtctl.agent.records.spec import Spec
from dtctl.agent.records.values import FINAL
from dtctl.agent.run import drains, goodput, intents
from tests.nights import at_night
from tests.reasons import given_up, reason_of
from tests.unit.agent.coordinate.training import Trial
from tests.unit.agent.coordinate.world import World, async_ps, collective, running
from tests.unit.holds import held as held_by

ANNA = "anna@desk"
ALL = ["ps:0", "ps:1", "chief:0", "worker:0", "worker:1"]
PLACES = {"ps:0": "a", "ps:1": "b", "chief:0": "c", "worker:0": "d", "worker:1": "e", "evaluator:0": "f"}


def held(world: World) -> list[str]:
    return [task for task, intent in world.data["intents"].items() if drains.is_drained(intent)]


def drained(world: World, host: str) -> World:
    world.request("drain", host=host, by=ANNA)
    world.until(lambda: bool(held(world)) and all(world.states[task] in ("pending", *FINAL) for task in held(world)))
    return world


@pytest.mark.parametrize(
    ("strategy", "recovery", "host", "expected"),
    [
        ("async-ps", {}, "e", ["worker:1"]),
        ("async-ps", {}, "f", ["evaluator:0"]),
        ("async-ps", {}, "c", ALL),
        ("async-ps", {}, "a", ALL),
        ("sync-ps", {}, "e", ALL),
        ("ps-strategy", {}, "e", ALL),
        ("ps-strategy", {}, "f", ["evaluator:0"]),
    ],
)
def test_a_drain_holds_the_hosts_tasks_and_those_that_cannot_continue_without_them(
    strategy: str, recovery: dict[str, str], host: str, expected: list[str]
) -> None:
    world = drained(running(World(strategy, PLACES)), host)
    world.run_for(300.0)
    assert held(world) == expected
    others = [task for task in PLACES if task not in expected]
    assert {world.states[task] for task in expected} == {"pending"}
    assert {world.states[task] for task in others} == {"running"}
    assert all(world.attempts[task] == 1 for task in PLACES)
    assert world.condition == ("Running" if "chief:0" in others else "Suspended")
    assert world.data["incidents"] == []
    assert world.data["waits_for"]["why"] == []
    world.request("undrain", host=host, by=ANNA)
    world.until(lambda: all(task.entry["ready"] for task in world.tasks.values()))
    assert held(world) == []
    assert world.attempts == {task: 2 if task in expected else 1 for task in PLACES}
    world.run_for(1.0)
    assert world.condition == "Running"
    assert not any(task.entry["restarts"] for task in world.tasks.values()), "it counts in no budget"
    requests = [(reason_of(line), line["by"]) for line in world.events if line["kind"] == "request"]
    assert requests == [(f"drain {host}", ANNA), (f"undrain {host}", ANNA)]


def test_drain_holds_every_task_of_a_collective_and_names_the_host_and_the_user() -> None:
    world = drained(collective(), "b")
    assert held(world) == ["worker:0", "worker:1", "worker:2"]
    assert {reason_of(task.entry) for task in world.tasks.values()} == {"b is drained by anna@desk"}
    assert reason_of(world.data["condition"]) == "b is drained by anna@desk"
    assert world.decisions == ["b is drained by anna@desk: worker:0, worker:1, worker:2 held"]


def test_servers_are_held_when_those_that_save_on_them_have_ended() -> None:
    world = async_ps()
    for task in ("chief:0", "worker:0"):
        world.tasks[task].stubborn = True
    world.request("drain", host="a", by=ANNA)
    world.run_for(5.0)
    assert held(world) == ["chief:0", "worker:0", "worker:1"]
    assert (world.states["ps:0"], world.states["ps:1"]) == ("running", "running")
    world.tasks["worker:0"].stubborn = False
    world.run_for(2.0)
    assert world.states["ps:0"] == "running", "the chief still saves"
    world.tasks["chief:0"].stubborn = False
    world.run_for(2.0)
    assert held(world) == ALL
    assert {world.states[task] for task in ALL} == {"pending"}


def test_servers_wait_no_longer_than_the_grace_period_for_what_cannot_be_ended() -> None:
    world = async_ps()
    world.tasks["chief:0"].stubborn = True
    world.request("drain", host="a", by=ANNA)
    world.run_for(world.spec["grace_s"] + END_LIMIT_S - 1)
    assert world.states["ps:0"] == "running"
    world.run_for(3.0)
    assert world.states["ps:0"] == "pending"


def test_nothing_starts_on_a_drained_host_after_any_restart() -> None:
    world = drained(async_ps(), "e")
    world.crash("e")
    world.run_for(60.0)
    assert world.condition == "Running"
    world.boot("e")
    world.restart_coordinator()
    world.run_for(60.0)
    assert world.states["worker:1"] == "pending"
    world.crash("c")
    world.run_for(5.0)
    world.boot("c")
    world.restart_coordinator(rebooted=True)
    world.run_for(60.0)
    assert world.attempts["worker:1"] == 1
    world.request("undrain", host="e", by=ANNA)
    world.until(lambda: world.states["worker:1"] == "running")


def test_a_coordinator_that_knows_nothing_learns_of_it_from_the_agents() -> None:
    world = drained(collective(), "b")
    world._make_coordinator(first_view(world.spec, world.wall))
    world.coordinator.rebuild(fact("put_aside", text="damaged", what="x"), world.wall)
    world.run_for(60.0)
    assert set(world.states.values()) == {"pending"}
    assert drains.holders(world.data["intents"]).keys() == {"b"}
    world.request("undrain", host="b", by=ANNA)
    world.until(lambda: set(world.states.values()) == {"running"})


def test_all_start_again_together_once_the_drained_host_is_back() -> None:
    world = drained(collective(), "b")
    world.crash("b")
    world.mended = ["ckpt-7 is damaged"]
    world.request("undrain", host="b", by=ANNA)
    world.run_for(60.0)
    assert set(world.states.values()) == {"pending"}
    assert reason_of(world.data["waits_for"]) == "worker:1: its host b is unreachable"
    assert world.condition == "Restarting"
    assert reason_of(world.tasks["worker:0"].entry).startswith("b is in service again: all")
    world.boot("b")
    world.run_for(1.0)
    assert world.attempts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}
    assert world.decisions[-1] == "ckpt-7 is damaged", "it was set aside before the lead restores"
    assert {headline(why_of(intent)) for intent in world.data["intents"].values()} == {"resumed"}


def test_an_undrain_before_the_tasks_have_ended_starts_none_beside_what_still_runs() -> None:
    world = collective()
    world.tasks["worker:2"].stubborn = True
    world.request("drain", host="b", by=ANNA)
    world.run_for(2.0)
    world.request("undrain", host="b", by=ANNA)
    world.run_for(5.0)
    assert world.states == {"worker:0": "pending", "worker:1": "pending", "worker:2": "running"}
    world.tasks["worker:2"].stubborn = False
    world.run_for(2.0)
    assert world.attempts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}


def test_what_two_hosts_hold_waits_for_both() -> None:
    world = drained(drained(async_ps(), "e"), "a")
    assert reason_of(world.tasks["worker:1"].entry) == "e is drained by anna@desk; a is drained by anna@desk"
    assert reason_of(world.tasks["chief:0"].entry) == "a is drained by anna@desk"
    world.request("undrain", host="a", by=ANNA)
    world.until(lambda: world.states["chief:0"] == "running")
    world.run_for(10.0)
    assert held(world) == ["worker:1"]
    world.request("undrain", host="e", by=ANNA)
    world.until(lambda: world.states["worker:1"] == "running")


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_collective_waits_until_no_host_is_drained(first: str) -> None:
    world = drained(drained(collective(), "a"), "b")
    world.request("undrain", host=first, by=ANNA)
    world.run_for(30.0)
    assert set(world.states.values()) == {"pending"}
    assert world.condition == "Suspended"
    world.request("undrain", host="b" if first == "a" else "a", by=ANNA)
    world.until(lambda: set(world.states.values()) == {"running"})


def test_a_second_drain_or_undrain_changes_nothing() -> None:
    world = drained(async_ps(), "e")
    versions = {task: intent["version"] for task, intent in world.data["intents"].items()}
    world.request("drain", host="e", by="bob@desk")
    world.run_for(2.0)
    assert reason_of(world.tasks["worker:1"].entry) == "e is drained by anna@desk"
    world.request("undrain", host="d", by=ANNA)
    world.run_for(2.0)
    assert {task: intent["version"] for task, intent in world.data["intents"].items()} == versions


def test_host_timeout_fails_no_run_for_a_drained_host() -> None:
    recovery = {"host_timeout_s": 20.0}
    world = drained(async_ps(recovery=recovery), "e")
    world.cut.add("e")
    world.run_for(100.0)
    assert world.condition == "Running"
    world.cut.add("d")
    world.run_for(30.0)
    assert world.condition == "Failed", "another host that is away does"


def test_pause_counts_neither_for_a_deadline_nor_for_the_goodput() -> None:
    world = collective(active_deadline_s=200.0)
    for step in range(1, 60):
        world.tell_step("worker:0", step)
        world.run_for(1.0)
    drained(world, "b")
    world.run_for(1000.0)
    assert world.condition == "Suspended"
    account = world.data["account"]
    assert account is not None
    parts = goodput.parts(account)
    assert parts["pause"] == pytest.approx(1000.0, abs=5.0)
    text = goodput.summary(parts)
    assert read(text[0])["count"] > 90
    assert read(text[-1])["kind"] == "spent_pause"
    world.request("undrain", host="b", by=ANNA)
    world.run_for(200.0)
    assert world.condition == "Failed"
    assert parts["pause"] == pytest.approx(goodput.parts(account)["pause"], abs=5.0)


@pytest.mark.parametrize("host", ["e", "a"])
def test_stop_ends_a_run_with_a_drained_host_as_always(host: str) -> None:
    world = drained(async_ps(), host)
    world.request("stop", by=ANNA)
    world.until(lambda: world.data["phase"] == "ended")
    assert set(world.states.values()) == {"stopped"}
    assert world.condition == "Stopped"


def test_a_run_succeeds_though_a_host_is_drained() -> None:
    world = drained(async_ps(), "e")
    world.die("chief:0", code=0)
    world.run_for(60.0)
    assert world.condition == "Succeeded"
    assert world.states["worker:1"] == "stopped"


def test_a_task_that_was_stopped_or_has_ended_stays_so() -> None:
    world = async_ps()
    world.request("stop", ["worker:0"])
    world.die("worker:1", code=0)
    world.run_for(2.0)
    drained(world, "a")
    world.request("undrain", host="a", by=ANNA)
    world.run_for(10.0)
    assert (world.states["worker:0"], world.states["worker:1"]) == ("stopped", "succeeded")
    assert world.attempts == {**dict.fromkeys(ALL, 2), "worker:0": 1, "worker:1": 1}


def test_a_loss_elsewhere_restarts_nothing_on_a_drained_host() -> None:
    """Nor is an open incident waited for, of which a task is held from now on."""
    world = running(World("sync-ps", {**PLACES, "worker:2": "g"}))
    drained(world, "f")
    world.die("ps:0")
    world.run_for(0.5)
    assert world.data["incidents"][0]["begun"] is None or world.states["ps:0"] == "running"
    world.run_for(30.0)
    assert world.states["evaluator:0"] == "pending"
    assert {world.states[task] for task in PLACES if task != "evaluator:0"} == {"running"}
    world.die("ps:1")
    drained(world, "a")
    assert [given_up(one) for one in world.data["incidents"]][-1] == "a is drained by anna@desk"
    world.request("undrain", host="a", by=ANNA)
    world.until(lambda: world.states["ps:1"] == "running")


def test_restart_does_not_start_what_is_drained() -> None:
    world = drained(async_ps(), "e")
    world.request("restart", ["worker:0", "worker:1"])
    world.run_for(5.0)
    assert world.attempts["worker:0"] == 2
    assert world.states["worker:1"] == "pending"


def test_drain_without_the_coordinator_pauses_the_others_when_it_returns() -> None:
    world = collective()
    task = world.tasks["worker:1"]
    order = {**drains.hold(task.intent, task.entry, gang=True), **held_by(fact(drains.DRAINED, host="b", by=ANNA))}
    intents.change(task.intent, **order, by=ANNA)
    world.until(lambda: set(world.states.values()) == {"pending"})
    assert held(world) == ["worker:0", "worker:1", "worker:2"]
    asked = [(line["task"], reason_of(line)) for line in world.events if line["kind"] == "request"]
    assert asked == [("worker:1", "b is drained by anna@desk")]


def test_remaining_host_of_two_is_not_mistaken_for_the_replaced_one() -> None:
    world = running(World("async-ps", {"ps:0": "a", "chief:0": "a", "worker:0": "b"}))
    drained(world, "b")
    world.crash("b")
    world.run_for(60.0)
    world.die("chief:0")
    world.until(lambda: world.states["chief:0"] == "running")


@pytest.mark.usefixtures("processes_that_train")
@pytest.mark.parametrize("seed", at_night(range(12), but=range(4)))
def test_every_run_trains_again_after_drains_among_faults(seed: int) -> None:
    """Hosts are drained, rebooted meanwhile, and undrained, while tasks are lost and the coordinator is restarted."""
    strategy = ["async-ps", "sync-ps", "ps-strategy", "collective"][seed % 4]
    places = {f"worker:{index}": host for index, host in enumerate("abcd")}
    if strategy != "collective":
        places = {task: host for task, host in PLACES.items() if host != "f"}
    budget = {"max_restarts": 1000, "max_run_restarts": 10000, "backoff_min_s": 0.5, "backoff_max_s": 4.0, "repeat": 0}
    trial = Trial(strategy, places, seed, recovery=budget)
    trial.until(trial.is_whole, 60.0)
    rng = trial.random
    for _ in range(3):
        host, other = rng.sample(sorted(set(places.values())), 2)
        trial.end(rng.choice(list(places)))
        trial.run_for(rng.uniform(0.0, 4.0))
        trial.request("drain", host=host, by=ANNA)
        trial.run_for(rng.uniform(0.0, 20.0))
        on = [task for task, place in places.items() if place == host]
        if rng.random() < 0.6 and host != trial.spec["host"]:
            trial.crash(host)
            trial.run_for(rng.uniform(1.0, 40.0))
            trial.boot(host)
        if rng.random() < 0.5 and other != trial.spec["host"]:
            trial.kill_agent(other)
            trial.later(2.0, lambda other=other: trial.start_agent(other))  # type: ignore[misc]
        trial.run_for(rng.uniform(15.0, 60.0))
        assert all(trial.states[task] == "pending" for task in on)
        trial.request("undrain", host=host, by=ANNA)
        trial.until(trial.is_whole, 3000.0)


def shuts_down(world: World, host: str) -> None:
    """As its agent does that is sent SIGTERM: the trainers have ended, and are held."""
    own = {task: world.tasks[task] for task, place in world.places.items() if place == host}
    spec: Spec = {**world.spec, "host": host}
    wanted, entries = {task: one.intent for task, one in own.items()}, {task: one.entry for task, one in own.items()}
    orders = intents.to_leave(spec, wanted, entries)
    for task, intent in orders.items():
        world.tasks[task].intent = intent
    world.run_for(2.0)
    world.crash(host)


def starts_again(world: World, host: str) -> None:
    own = [task for task, place in world.places.items() if place == host]
    spec: Spec = {**world.spec, "host": host}
    for task, intent in intents.to_return(spec, {task: world.tasks[task].intent for task in own}).items():
        world.tasks[task].intent = intent
    world.boot(host)


def contacts(world: World) -> list[str]:
    return [reason_of(line) for line in world.events if line["kind"] == "contact" and "service" in reason_of(line)]


@pytest.mark.parametrize(
    ("host", "held_tasks"),
    [("e", ["worker:1"]), ("c", ALL), ("a", ALL)],
)
def test_announced_shutdown_loses_no_task_and_they_start_again_after_it(host: str, held_tasks: list[str]) -> None:
    world = async_ps(recovery={"max_restarts": 0})
    shuts_down(world, host)
    assert held(world) == held_tasks
    world.run_for(30.0)
    assert world.condition == ("Running" if host == "e" else "Restarting")
    assert world.data["incidents"] == []
    assert next(reason_of(line) for line in world.events if line["host"] == host) == f"{host} is shutting down"
    assert {world.states[task] for task in held_tasks} == {"pending"}
    starts_again(world, host)
    world.until(lambda: all(task.entry["ready"] for task in world.tasks.values()))
    assert world.attempts == {task: 2 if task in held_tasks else 1 for task in ALL}
    assert contacts(world)[0].startswith(f"{host} is in service again")
    world.run_for(1.0)
    assert world.condition == "Running"


def test_a_host_that_shuts_down_for_good_fails_the_run_by_host_timeout() -> None:
    world = collective(recovery={"host_timeout_s": 20.0})
    shuts_down(world, "b")
    world.run_for(10.0)
    assert world.condition == "Restarting"
    account = world.data["account"]
    assert account is not None
    assert not goodput.parts(account)["pause"], "nobody has asked for it"
    world.run_for(15.0)
    assert world.condition == "Failed"


def test_drain_outlives_a_shutdown_and_a_host_can_be_drained_during_one() -> None:
    world = drained(async_ps(), "e")
    shuts_down(world, "e")
    starts_again(world, "e")
    world.run_for(30.0)
    assert world.states["worker:1"] == "pending"
    world.request("undrain", host="e", by=ANNA)
    world.until(lambda: world.states["worker:1"] == "running")
    shuts_down(world, "e")
    world.request("drain", host="e", by=ANNA)
    world.run_for(1.0)
    starts_again(world, "e")
    world.run_for(30.0)
    assert reason_of(world.tasks["worker:1"].entry) == "e is drained by anna@desk"


def test_the_coordinators_host_shuts_down_and_all_start_again_when_it_is_back() -> None:
    world = collective()
    shuts_down(world, "a")
    world.boot("a")
    world.restart_coordinator(rebooted=True)
    world.crashed.add("a")
    starts_again(world, "a")
    world.until(lambda: all(task.entry["ready"] for task in world.tasks.values()), 120.0)
    assert world.attempts == {"worker:0": 2, "worker:1": 2, "worker:2": 2}


def test_a_host_drains_no_other_host() -> None:
    world = collective()
    task = world.tasks["worker:1"]
    order = {**drains.hold(task.intent, task.entry, gang=True), **held_by(fact(drains.DRAINED, host="c", by=ANNA))}
    intents.change(task.intent, **order, by=ANNA)
    world.run_for(5.0)
    assert held(world) == []
    assert world.states["worker:0"] == "running"
