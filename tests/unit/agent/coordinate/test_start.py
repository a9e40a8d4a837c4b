"""The start of a run: who starts when, and what is said of a start that does not come about."""

from __future__ import annotations

import pytest

from dtctl.agent.coordinate import lifecycle
from dtctl.agent.supervise import autopsy
from tests.unit.agent.coordinate.world import World

PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c", "worker:1": "d", "evaluator:0": "d"}


@pytest.mark.parametrize("strategy", ["async-ps", "sync-ps", "ps-strategy", "collective"])
def test_all_start_at_once(strategy: str) -> None:
    places = PLACES if strategy != "collective" else {"worker:0": "a", "worker:1": "b"}
    world = World(strategy, places)
    world.until(lambda: any(world.attempts.values()))
    world.run_for(0.5)
    assert set(world.attempts.values()) == {1}
    world.run_for(2)
    assert (world.condition, world.data["phase"], world.data["missing"]) == ("Running", "running", None)


@pytest.mark.parametrize(("held", "state"), [(True, "pending"), (False, "running")])
def test_a_start_lasts_until_ps_listens_and_the_wait_is_explained(held: bool, state: str) -> None:
    world = World("async-ps", PLACES, held=held)
    world.tasks["ps:0"].ready_s = 45.0
    world.run_for(40)
    assert world.states["chief:0"] == state
    assert world.data["missing"] == "ps:0 runs but does not listen on a:2222 yet"
    assert world.data["phase"] == "starting"
    world.run_for(20)
    assert set(world.states.values()) == {"running"}


def test_nothing_starts_before_every_host_was_heard() -> None:
    world = World("async-ps", PLACES)
    world.cut.add("d")
    world.run_for(30)
    assert set(world.states.values()) == {"pending"}
    assert world.data["missing"] == "1 host not connected to the coordinator on 10.0.0.1:2221 yet: d"
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


def test_hosts_that_come_one_after_the_other_are_awaited_until_the_start_may_take_no_longer() -> None:
    world = World("async-ps", PLACES, start_timeout_s=600.0)
    hosts = sorted(set(PLACES.values()) - {world.spec["host"]})
    world.cut.update(hosts)
    for host in hosts:
        world.run_for(lifecycle.REACH_LIMIT_S - 5.0)
        assert world.data["phase"] == "starting"
        world.cut.discard(host)
    world.until(lambda: world.condition == "Running")

    world = World("async-ps", PLACES, start_timeout_s=2 * lifecycle.REACH_LIMIT_S)
    world.cut.update(hosts)
    world.run_for(lifecycle.REACH_LIMIT_S - 5.0)
    world.cut.discard(hosts[0])
    world.run_for(lifecycle.REACH_LIMIT_S - 5.0)
    world.cut.discard(hosts[1])
    world.until(lambda: world.data["phase"] == "ended", 30.0)
    assert "firewall" in world.data["condition"]["reason"]


def test_a_task_that_never_listens_fails_the_start_by_name() -> None:
    world = World("async-ps", PLACES, start_timeout_s=120.0)
    world.tasks["ps:0"].ready_s = 1e9
    world.run_for(5)
    world.die("worker:1", code=1)
    world.until(lambda: world.data["phase"] == "ended", 200)
    assert world.data["condition"]["cause"] == "ps:0"
    assert world.data["condition"]["reason"] == "not ready after 120 s: ps:0 runs but does not listen on a:2222 yet"
    assert (world.states["ps:0"], world.states["worker:1"]) == ("stopped", "stopped")


def test_a_run_whose_controller_is_lost_during_the_start_is_taken_back_everywhere() -> None:
    world = World("async-ps", PLACES)
    world.run_for(3)
    world.lost_session = True
    world.run_for(1)
    world.until(lambda: world.data["phase"] == "ended")
    assert world.condition == "Failed"
    assert "controller" in world.data["condition"]["reason"]
    assert set(world.states.values()) == {"stopped"}


def test_a_task_that_fails_before_its_peers_are_ready_starts_again_with_them_and_it_counts_for_nothing() -> None:
    world = World("async-ps", PLACES, recovery={"max_restarts": 0, "max_run_restarts": 0})
    world.tasks["ps:0"].ready_s = 30.0
    world.run_for(5)
    world.die("worker:1", "chief:0", code=1)
    world.run_for(10)
    assert (world.states["worker:1"], world.states["chief:0"]) == ("backoff", "backoff")
    assert world.tasks["worker:1"].entry["reason"] == "exit code 1; those that it needs were not ready"
    assert world.data["missing"] == "ps:0 runs but does not listen on a:2222 yet"
    world.run_for(20)
    assert set(world.states.values()) == {"running"}
    assert (world.attempts["worker:1"], world.attempts["chief:0"], world.attempts["worker:0"]) == (2, 2, 1)
    assert (world.data["restarts"], world.data["incidents"], world.decisions) == (0, [], [])


def test_what_could_not_find_its_peers_and_ends_when_they_are_ready_has_failed_early_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autopsy, "end_of", lambda *_: "ConnectionRefusedError: [Errno 111]")
    world = World("async-ps", PLACES)
    world.until(lambda: any(world.attempts.values()))
    world.until(lambda: not any(intent["early"] for intent in world.data["intents"].values()))
    world.die("worker:1", code=1)
    world.run_for(1)
    assert (world.states["worker:1"], world.attempts["worker:1"], world.data["restarts"]) == ("running", 2, 0)
    world.die("worker:1", code=1)
    world.run_for(1)
    assert world.data["restarts"] == 1


def test_a_mistake_of_the_program_fails_the_start_at_once() -> None:
    world = World("async-ps", PLACES)
    world.tasks["ps:0"].ready_s = 30.0
    world.run_for(2)
    world.die("worker:1", code=2)
    world.run_for(0.5)
    assert (world.condition, world.data["condition"]["cause"]) == ("Failed", "worker:1")
