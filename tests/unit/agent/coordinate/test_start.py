"""The order in which a run starts, and what is said of a start that does not come about."""

from __future__ import annotations

from tests.unit.agent.coordinate.world import World

PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c", "worker:1": "d", "evaluator:0": "d"}


def test_ps_start_first_then_the_lead_then_workers() -> None:
    world = World("async-ps", PLACES)
    begun: list[str] = []
    while len(begun) < 5:
        world.tick()
        begun += [name for name, attempt in world.attempts.items() if attempt and name not in begun]
        assert world.now < 200
    assert begun == ["ps:0", "chief:0", "worker:0", "worker:1", "evaluator:0"]
    world.run_for(2)
    assert (world.condition, world.data["phase"], world.data["missing"]) == ("Running", "running", None)


def test_the_others_are_held_until_ps_listens_and_the_wait_is_explained() -> None:
    world = World("async-ps", PLACES)
    world.tasks["ps:0"].ready_s = 45.0
    world.run_for(40)
    assert world.states["chief:0"] == "pending"
    assert world.data["missing"] == "ps:0 runs but does not listen on a:2222 yet"
    assert world.data["phase"] == "starting"
    world.run_for(20)
    assert set(world.states.values()) == {"running"}


def test_nothing_starts_before_every_host_was_heard() -> None:
    world = World("async-ps", PLACES)
    world.cut.add("d")
    world.run_for(30)
    assert set(world.states.values()) == {"pending"}
    assert world.data["missing"] == "d: no word from it yet (the agents dial 10.0.0.1:2221)"
    world.cut.clear()
    world.run_for(10)
    assert set(world.states.values()) == {"running"}


def test_a_host_that_never_reaches_the_coordinator_fails_the_start_within_a_minute() -> None:
    world = World("async-ps", PLACES)
    world.cut.add("d")
    world.until(lambda: world.data["phase"] == "ended", 90)
    assert world.condition == "Failed"
    assert "firewall" in world.data["condition"]["reason"]
    assert not any(world.attempts.values())


def test_a_task_that_never_listens_fails_the_start_by_name() -> None:
    world = World("async-ps", PLACES, start_timeout_s=120.0)
    world.tasks["ps:0"].ready_s = 1e9
    world.until(lambda: world.data["phase"] == "ended", 200)
    assert world.data["condition"]["cause"] == "ps:0"
    assert world.data["condition"]["reason"] == "not ready after 120 s: ps:0 runs but does not listen on a:2222 yet"
    assert world.states["ps:0"] == "stopped"


def test_a_run_whose_controller_is_lost_during_the_start_is_taken_back_everywhere() -> None:
    world = World("async-ps", PLACES)
    world.run_for(3)
    world.lost_session = True
    world.run_for(1)
    world.until(lambda: world.data["phase"] == "ended")
    assert world.condition == "Failed"
    assert "controller" in world.data["condition"]["reason"]
    assert set(world.states.values()) == {"stopped"}


def test_in_a_collective_all_start_at_once() -> None:
    world = World("collective", {"worker:0": "a", "worker:1": "b"})
    world.run_for(0.75)
    assert world.attempts == {"worker:0": 1, "worker:1": 1}
