"""A run that was started without some hosts: nobody waits for them, nothing fails for them, and they may join it."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate.view import first_view
from dtctl.agent.records.kinds import Wrong, checked
from dtctl.agent.records.reasons import because, fact
from dtctl.agent.records.run_state import How
from dtctl.agent.records.spec import Spec, inventory_of
from dtctl.agent.run import intents
from tests.unit.agent.coordinate.world import World, spec_of

PLACES = {"ps:0": "a", "ps:1": "b", "chief:0": "c", "worker:0": "d", "worker:1": "e"}
BY_ME: How = {"by": "me@desk", "grace_s": None, **because([fact("stopped_by", by="me@desk")])}


def without_e(**fields: Any) -> World:
    """It has started, and e was never there."""
    world = World(fields.pop("strategy", "async-ps"), PLACES, absent=["e"], **fields)
    world.coordinator.begin(world.wall)
    world.crash("e")
    world.until(lambda: all(world.tasks[task].entry["ready"] for task in list(PLACES)[:4]))
    world.run_for(1.0)
    return world


def test_the_others_start_and_the_run_is_under_way() -> None:
    world = without_e()
    assert world.data["phase"] == "running"
    assert world.condition == "Running"
    assert world.data["condition"]["reason"] == "4 of 5 tasks run"
    assert world.data["missing"] is None
    assert "the run begins without e" in [line["reason"] for line in world.story]


def test_no_deadline_of_the_start_counts_for_it_and_nobody_is_held_to_be_mending() -> None:
    world = without_e(start_timeout_s=20.0, recovery={"host_timeout_s": 30.0})
    world.run_for(120)
    assert world.condition == "Running"
    assert not any(world.mending.values())


def test_the_run_succeeds_and_ends_without_it() -> None:
    world = without_e()
    world.die("chief:0", "worker:0", code=0)
    world.until(lambda: world.coordinator.over, 20)
    assert world.condition == "Succeeded"
    assert world.data["phase"] == "ended"


def test_it_decides_no_success_where_every_worker_does() -> None:
    world = without_e(success="all-workers")
    for member in world.spec["roster"]:
        member["decides"] = member["role"] in ("lead", "worker")
    world.coordinator.view.data["hosts"]["e"]["absent"] = True
    world.die("chief:0", "worker:0", code=0)
    world.until(lambda: world.condition == "Succeeded", 5)


def test_a_stop_of_everything_waits_for_it_no_moment() -> None:
    world = without_e()
    world.request("stop")
    world.until(lambda: world.coordinator.over, 5)
    assert (world.condition, world.data["phase"]) == ("Stopped", "ended")


def test_stopping_each_task_that_is_there_stops_the_run() -> None:
    world = without_e()
    world.request("stop", list(PLACES)[:4])
    world.until(lambda: world.coordinator.over, 5)
    assert world.condition == "Stopped"


def test_a_restart_of_its_task_changes_nothing() -> None:
    world = without_e()
    world.request("restart", ["worker:1", "worker:0"])
    world.until(lambda: world.attempts["worker:0"] == 2)
    assert world.data["intents"]["worker:1"]["want"] == "hold"


def test_a_restart_of_everybody_does_not_wait_for_it() -> None:
    world = without_e(strategy="sync-ps")
    world.die("ps:0")
    world.until(lambda: all(world.attempts[task] == 2 for task in list(PLACES)[:4]))
    assert world.condition in ("Restarting", "Running")


def test_it_joins_when_it_comes_and_starts_at_once() -> None:
    world = without_e()
    world.run_for(300)
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)
    assert not world.data["hosts"]["e"]["absent"]
    assert "e has joined the run, which had begun without it" in [line["reason"] for line in world.story]
    world.run_for(2)
    assert world.data["condition"]["reason"] == "5 of 5 tasks run"
    world.die("worker:1")
    world.until(lambda: world.attempts["worker:1"] == 2)


def test_once_it_has_joined_it_is_missed_like_any_other() -> None:
    world = without_e()
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)
    world.crash("e")
    world.run_for(2)
    assert any(line["reason"].startswith("e is away") for line in world.story)


def test_the_next_coordinator_does_not_wait_for_it_either() -> None:
    world = without_e()
    world.restart_coordinator()
    world.run_for(60)
    assert world.condition == "Running"
    assert not any(line["reason"].startswith("e is away") for line in world.story)
    rebuilt = first_view(world.spec, world.wall)
    assert [host for host, known in rebuilt["hosts"].items() if known["absent"]] == ["e"]


@pytest.mark.parametrize("heard", [True, False])
def test_one_whose_join_is_taken_back_is_out_again_and_may_come_once_more(heard: bool) -> None:
    """`heard`: it has said so; else its controller was lost, which ends its tasks and no others."""
    world = without_e()
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)
    if heard:
        stopped = {"want": "stop", "grace_s": 0.0, **because([fact("rolled_back")])}
        intents.change(world.tasks["worker:1"].intent, **stopped)
        world.until(lambda: world.states["worker:1"] == "stopped", 5)
    else:
        world.lost_session_on.add("e")
        world.run_for(1)
    assert world.condition == "Running", "the run is no part of it"
    world.crash("e")
    world.run_for(2)
    assert world.data["hosts"]["e"]["absent"]
    assert not any(world.mending.values()), "nobody waits for it"
    assert "e is out of the run again: its `up` was given up" in [line["reason"] for line in world.story]
    world.lost_session_on.clear()
    anew = World("async-ps", PLACES, absent=["e"]).tasks["worker:1"]
    world.tasks["worker:1"] = anew
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)


def test_no_run_is_without_its_coordinators_host_or_a_stranger() -> None:
    for host in ("c", "nowhere"):
        with pytest.raises(Wrong, match="absent"):
            checked(Spec, spec_of("async-ps", PLACES, absent=[host]))
    assert inventory_of(spec_of("async-ps", PLACES, absent=["e"]))["absent"] == ["e"]
