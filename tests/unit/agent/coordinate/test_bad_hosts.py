"""A host on which tasks fail again and again, and no other does: it is left out until a person undrains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import sentence
from dtctl.agent.records.run_state import Past
from dtctl.agent.records.spec import RecoverySpec
from dtctl.agent.run import drains, run_events
from dtctl.agent.run.bad_hosts import bad_host, failures, says_of_host
from tests.reasons import reason_of
from tests.unit.agent.coordinate.slot_world import SlotWorld
from tests.unit.agent.coordinate.slots import REPLACE_S
from tests.unit.agent.coordinate.world import World

ECC = "Traceback (most recent call last):\nRuntimeError: CUDA error: uncorrectable ECC error encountered"
PEER_LOST = "Traceback (most recent call last):\nConnectionResetError: [Errno 104] Connection reset by peer"
PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c", "worker:1": "d", "worker:2": "e"}
WORKERS = {"worker:0": "a", "worker:1": "b", "worker:2": "c", "worker:3": "d"}
BUDGET = {"bad_host": 3, "max_restarts": 20, "repeat": 3, "backoff_max_s": 1.0, "retry": [42, 137, 139, 143]}
RECOVERY = made(
    RecoverySpec, max_restarts=3, backoff_min_s=1.0, backoff_max_s=4.0, reset_after_s=600.0, retry=[42, 137, 139, 143]
)


def world_of(strategy: str, places: dict[str, str], recovery: Mapping[str, Any] = {}, **fields: Any) -> World:
    world = World(strategy, places, recovery={**BUDGET, **recovery}, **fields)
    world.until(lambda: set(world.states.values()) == {"running"})
    world.run_for(3.0)
    return world


def fail(world: World, *names: str, log: str = ECC, **ending: Any) -> None:
    """Their processes end by themselves; the tasks run again afterwards, if they are to."""
    world.die(*names, **(ending or {"code": 1}), log=log)
    world.run_for(15.0)


def out(world: World) -> list[str]:
    return [host for host, one in drains.holders(world.data["intents"]).items() if one["kind"] == drains.BAD_HOST]


def warnings(world: World) -> list[str]:
    return [reason_of(one) for one in world.data["alerts"]]


def test_the_host_of_three_failures_in_a_row_is_left_out_and_the_others_train() -> None:
    world = world_of("async-ps", PLACES)
    fail(world, "worker:2")
    fail(world, "worker:2")
    assert (out(world), world.states["worker:2"]) == ([], "running")
    fail(world, "worker:2")  # its agent alone would let the run fail: the same error three times
    assert (out(world), world.states["worker:2"], world.condition) == (["e"], "pending", "Running")
    said = "worker:2 left out: the last 3 failures of the run were all on e (dtctl undrain e lets it take part again)"
    assert (warnings(world), world.decisions[-1], reason_of(world.tasks["worker:2"].entry)) == ([said], said, said)
    world.run_for(600.0)
    assert world.attempts == {task: 3 if task == "worker:2" else 1 for task in PLACES}


def test_undrained_host_takes_part_again_and_earlier_failures_do_not_count() -> None:
    world = world_of("async-ps", PLACES, {"repeat": 0})
    for _ in range(3):
        fail(world, "worker:2")
    world.request("undrain", host="e", by="anna@desk")
    world.until(lambda: world.tasks["worker:2"].entry["ready"])
    world.run_for(5.0)
    assert (out(world), warnings(world)) == ([], [])
    fail(world, "worker:2")
    fail(world, "worker:2")
    assert (out(world), world.states["worker:2"]) == ([], "running")
    fail(world, "worker:2")
    assert out(world) == ["e"]


@pytest.mark.parametrize(
    ("ends", "left_out"),
    [
        ([("worker:2", {"signal": 11})] * 3, ["e"]),
        ([("worker:2", {"signal": 9})] * 3, []),
        ([("worker:2", {"code": 42})] * 4, []),
        ([("worker:2", {}), ("worker:1", {}), ("worker:2", {}), ("worker:2", {})], []),
        ([("worker:2", {}), ("worker:1", {}), *[("worker:2", {})] * 3], ["e"]),
    ],
    ids=["segmentation faults", "killed by others", "saved, start again", "another host between", "then in a row"],
)
def test_what_counts(ends: list[tuple[str, dict[str, Any]]], left_out: list[str]) -> None:
    world = world_of("async-ps", PLACES, {"repeat": 0})
    for name, ending in ends:
        fail(world, name, **ending)
    assert out(world) == left_out


def test_program_that_fails_on_every_host_blames_none() -> None:
    world = world_of("async-ps", PLACES, {"repeat": 0})
    for _ in range(4):
        fail(world, "worker:0", "worker:1", "worker:2")
    assert (out(world), warnings(world)) == ([], [])


def test_collective_trains_on_without_the_host_as_min_workers_allows() -> None:
    world = world_of("collective", WORKERS, resizes=True, min_workers=2)
    for _ in range(3):
        fail(world, "worker:3")
    world.until(lambda: world.states == {**dict.fromkeys(WORKERS, "running"), "worker:3": "pending"})
    world.run_for(5.0)
    assert (out(world), world.condition) == (["d"], "Running")
    assert [world.tasks[task].intent["without"] for task in WORKERS][:3] == [["worker:3"]] * 3
    world.request("undrain", host="d", by="anna@desk")
    world.until(lambda: set(world.states.values()) == {"running"})
    assert world.tasks["worker:0"].intent["without"] == []


def test_peers_that_lose_the_task_of_the_host_say_nothing_of_theirs() -> None:
    world = world_of("collective", WORKERS, resizes=True, min_workers=2)
    for _ in range(3):
        world.die("worker:3", code=1, log=ECC)
        fail(world, "worker:0", "worker:1", log=PEER_LOST)
    assert out(world) == ["d"]


@pytest.mark.parametrize(
    ("strategy", "places", "task"), [("collective", WORKERS, "worker:3"), ("async-ps", PLACES, "ps:0")]
)
def test_host_that_the_run_needs_is_named_and_the_run_goes_by_its_budgets(
    strategy: str, places: dict[str, str], task: str
) -> None:
    world = world_of(strategy, places, {"repeat": 0})
    for _ in range(3):
        fail(world, task)
    host = places[task]
    assert (out(world), warnings(world)) == (
        [],
        [
            f"the last 3 failures of the run were all on {host}, and it cannot continue without it"
            f" (dtctl replace {host} moves its tasks)"
        ],
    )
    assert set(world.states.values()) == {"running"}
    fail(world, "chief:0" if "chief:0" in places else "worker:0")
    assert warnings(world) == [], "another host has failed since"


def test_next_coordinator_knows_what_is_left_out_and_why() -> None:
    world = world_of("async-ps", PLACES)
    for _ in range(3):
        fail(world, "worker:2")
    world.restart_coordinator()
    world.run_for(60.0)
    assert (out(world), len(warnings(world)), world.states["worker:2"]) == (["e"], 1, "pending")


def test_hooks_are_notified_once() -> None:
    world = world_of("async-ps", PLACES)
    for _ in range(3):
        fail(world, "worker:2")
    world.run_for(30.0)
    [event] = [one for one in run_events.events_of(world.data) if one.kinds == ("bad_host",)]
    sent = run_events.payload(event, "demo", "2026-01-01T00:00:00Z")
    assert (sent["event"], sent["host"], sent["condition"]) == ("bad_host", "e", "Running")
    assert sent["text"].splitlines()[0].startswith("demo: worker:2 left out: the last 3 failures of the run were")
    assert sent["next"] == "dtctl diagnose --run demo-1"


def test_no_host_is_left_out_by_default() -> None:
    world = world_of("async-ps", PLACES, {"bad_host": 0, "repeat": 0})
    for _ in range(4):
        fail(world, "worker:2")
    assert (out(world), world.states["worker:2"]) == ([], "running")


def past(at: float, lived_s: float = 10.0, **fields: Any) -> Past:
    return made(Past, attempt=1, started=at - lived_s, ended=at, asked=False, **{"code": 1, **fields})


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (past(1009.0), True),
        (past(1009.0, code=None, signal=6), True),
        (past(1009.0, code=None, signal=15), False),
        (past(1009.0, code=None, signal=9, short_of_memory=True), True),
        (past(1009.0, code=None, signal=9, hung=True), True),
        (past(1009.0, code=None), False),
        (past(1009.0, code=0), False),
        (past(1009.0, code=143), False),
        (past(1009.0, early=True), False),
        (past(1009.0, cause="ConnectionResetError: [Errno 104] Connection reset by peer"), False),
        (past(1900.0, 700.0), False),
    ],
)
def test_an_end_says_something_of_its_host_or_not(one: Past, says: bool) -> None:
    assert says_of_host(one, RECOVERY) is says
    assert bool(failures({"worker:1": ("b", [one])}, RECOVERY, {})) is says
    assert failures({"worker:1": ("b", [one])}, RECOVERY, {"b": one["ended"]}) == []


@pytest.mark.parametrize(
    ("found", "limit", "expected"),
    [
        ([], 3, None),
        ([(1.0, "a", "w:0"), (50.0, "a", "w:0"), (99.0, "a", "w:0")], 3, ("a", 3)),
        ([(1.0, "a", "w:0"), (2.0, "a", "w:0"), (3.0, "a", "w:0")], 3, ("a", 3)),
        ([(1.0, "a", "w:0"), (2.0, "a", "w:1"), (3.0, "a", "w:2")], 3, None),  # its tasks fail together: once
        ([(1.0, "a", "w:0"), (60.0, "a", "w:1"), (120.0, "a", "w:2")], 3, ("a", 3)),
        ([(1.0, "a", "w:0"), (50.0, "b", "w:3"), (99.0, "a", "w:0")], 2, None),
        ([(1.0, "b", "w:3"), (50.0, "a", "w:0"), (99.0, "a", "w:0")], 2, ("a", 2)),
        ([(1.0, "a", "w:0")], 0, None),
    ],
)
def test_last_failures_are_counted_by_occasion(
    found: list[tuple[float, str, str]], limit: int, expected: tuple[str, int] | None
) -> None:
    assert bad_host(found, limit) == expected


def spared(strategy: str, places: dict[str, str], *spares: str, **recovery: Any) -> SlotWorld:
    world = SlotWorld(strategy, places, *spares, recovery={**BUDGET, **recovery}, movable=True)
    world.until(lambda: set(world.states.values()) == {"running"})
    world.run_for(3.0)
    return world


@pytest.mark.parametrize(
    ("strategy", "places", "task"),
    [("async-ps", PLACES, "worker:2"), ("async-ps", PLACES, "ps:0"), ("collective", WORKERS, "worker:3")],
)
@pytest.mark.parametrize("repeat", [0, 3])
def test_a_spare_takes_the_place_of_a_bad_host_that_is_connected(
    strategy: str, places: dict[str, str], task: str, repeat: int
) -> None:
    """The third failure may be the last that the budget of the task allows."""
    world, host = spared(strategy, places, "s", "t", repeat=repeat, max_restarts=2), places[task]
    for _ in range(3):
        assert world.data["moved"]["slots"] == {}
        fail(world, task)
    world.until(lambda: world.data["moved"]["slots"] == {host: "s"} and set(world.states.values()) == {"running"})
    world.run_for(5.0)
    assert (world.places[task], world.running_on(task), world.condition) == ("s", ["s"], "Running")
    said = f"the last failures of the run were all on {host}: s takes its tasks (dtctl undrain {host} makes it a spare)"
    assert any(text.startswith(said) for text in world.decisions)
    assert (world.data["hosts"][host]["drained"], world.data["moved"]["bad"]) == ("coordinator", [host])
    assert warnings(world) == [
        f"{host} takes part in no run until dtctl undrain {host}: the last failures of the run were all on it, and s "
        "has its tasks"
    ]
    world.request("undrain", host=host, by="anna@desk")
    assert world.data["hosts"][host]["drained"] is None
    world.until(lambda: world.data["moved"]["bad"] == [] and warnings(world) == [])


def test_the_next_coordinator_knows_which_host_was_replaced_for_its_failures() -> None:
    world = spared("async-ps", PLACES, "s")
    for _ in range(3):
        fail(world, "worker:2")
    world.until(lambda: world.data["moved"]["slots"] == {"e": "s"} and set(world.states.values()) == {"running"})
    world.elect("a")
    world.run_for(5.0)
    assert world.data["moved"]["bad"] == ["e"]
    world.data["hosts"]["e"]["drained"] = None
    unfit = world.coordinator._moving._unfit("e", "d", ["worker:1"])
    assert unfit is not None
    assert sentence([unfit]) == "e is drained"


def test_without_a_majority_no_host_is_trusted_again() -> None:
    world = spared("async-ps", PLACES, "s")
    for _ in range(3):
        fail(world, "worker:2")
    world.until(lambda: world.data["moved"]["slots"] == {"e": "s"} and set(world.states.values()) == {"running"})
    world.lease = False
    world.request("undrain", host="e", by="anna@desk")
    assert world.data["moved"]["bad"] == ["e"]
    reasons = [reason_of(line) for line in world.coordinator.history]
    assert any(text.startswith("e stays out: the coordinator has no majority") for text in reasons)


def test_a_bad_host_is_no_spare_before_it_is_undrained() -> None:
    world = spared("async-ps", PLACES, "s")
    for _ in range(3):
        fail(world, "worker:2")
    world.until(lambda: world.data["moved"]["slots"] == {"e": "s"} and set(world.states.values()) == {"running"})
    world.crash("s")
    world.run_for(REPLACE_S + 30.0)
    assert world.data["moved"]["slots"] == {"e": "s"}
    world.request("undrain", host="e", by="anna@desk")
    world.until(lambda: world.data["moved"]["slots"] == {} and set(world.states.values()) == {"running"})


def test_a_task_that_fails_on_the_spare_too_blames_neither_and_goes_by_its_budget() -> None:
    world = spared("async-ps", PLACES, "s", "t", repeat=0)
    for _ in range(6):
        fail(world, "worker:2")
    world.until(lambda: set(world.states.values()) == {"running"})
    assert (world.data["moved"]["slots"], out(world)) == ({"e": "s"}, [])


@pytest.mark.parametrize("why", ["no lease", "the spare is drained", "the spare is away"])
def test_without_a_spare_that_can_take_them_the_host_is_left_out_as_ever(why: str) -> None:
    world = spared("async-ps", PLACES, "s")
    if why == "no lease":
        world.coordinator._moving._term_of_lease = None
    elif why == "the spare is drained":
        world.request("drain", host="s")
    else:
        world.crash("s")
    for _ in range(3):
        fail(world, "worker:2")
    assert (out(world), world.data["moved"]["slots"], world.condition) == (["e"], {}, "Running")


def test_nothing_moves_while_another_task_of_the_host_runs() -> None:
    """What runs there is ended first; a task of the others' that only the agent there may start is held before."""
    world = spared("async-ps", {**PLACES, "worker:3": "e"}, "s")
    for _ in range(2):
        fail(world, "worker:2")
    world.die("worker:2", code=1, log=ECC)
    while world.data["moved"]["slots"] == {}:
        world.tick()
        assert world.now < 1000.0
    assert world.running_on("worker:3") in ([], ["e"])
    world.until(lambda: set(world.states.values()) == {"running"})
    world.run_for(5.0)
    assert (world.running_on("worker:2"), world.running_on("worker:3")) == (["s"], ["s"])
