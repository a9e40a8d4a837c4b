"""Hosts that are cut off or restart, and a coordinator that is killed."""

from __future__ import annotations

import pytest

from dtctl.agent.coordinate.view import first_view
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import because, fact, said
from dtctl.agent.records.run_state import How
from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.agent.run import intents
from tests.reasons import reason_of
from tests.unit.agent.coordinate.test_recovery import recovered
from tests.unit.agent.coordinate.world import World, async_ps


def contacts(events: list[HistoryEvent]) -> list[str]:
    return [reason_of(line) for line in events if line["kind"] == "contact"]


def test_nothing_is_restarted_only_because_a_host_is_away() -> None:
    world = async_ps()
    world.cut.add("b")
    world.run_for(61)
    assert world.condition == "Running"
    assert world.recovering["a"]  # who waits for a host that is away does not hang
    world.cut.clear()
    world.run_for(2)
    assert set(world.attempts.values()) == {1}
    assert contacts(world.events) == ["b is unreachable: no word for 10 s", "b is back after 61 s"]


def test_lost_host_of_an_asynchronous_worker_is_not_awaited() -> None:
    world = async_ps()
    world.cut.add("d")
    world.run_for(61)
    assert not world.recovering["a"]
    world.die("worker:1")
    world.run_for(0.5)
    assert not world.recovering["a"]


def test_host_timeout_fails_the_run_and_stops_the_others() -> None:
    world = async_ps(recovery={"host_timeout_s": 120.0})
    world.cut.add("d")
    world.run_for(110)
    assert world.condition == "Running"
    world.run_for(30)
    assert world.condition == "Failed"
    assert "d has been unreachable" in reason_of(world.data["condition"])
    assert world.states["worker:1"] == "stopped"


def test_a_host_that_went_while_the_coordinator_was_away_is_missed() -> None:
    world = async_ps(recovery={"host_timeout_s": 120.0})
    world.cut.add("d")
    world.restart_coordinator()
    world.run_for(60)
    assert [reason.partition(" after ")[0] for reason in contacts(world.events)] == [
        "the coordinator restarted",
        "d is unreachable: it has not connected since the coordinator restarted",
    ]
    world.run_for(90)
    assert world.condition == "Failed"


def test_stop_sent_directly_to_a_host_holds() -> None:
    world = async_ps()
    world.cut |= {"d"}
    world.run_for(1)
    worker = world.tasks["worker:0"]
    intents.change(worker.intent, want="stop", why=said("stopped"), by="me@pc")
    world.cut.clear()
    world.run_for(3)
    assert world.states["worker:0"] == "stopped"
    assert world.condition == "Running"
    assert world.data["intents"]["worker:0"]["by"] == "me@pc"


def test_stop_on_one_host_without_the_coordinator_later_stops_every_host() -> None:
    world = async_ps()
    asked = made(How, by="me@pc", grace_s=3.0, **because([fact("stopped_by", by="me")]))
    world.ask_to_end("a", asked)
    world.ask_to_end("b", asked)
    world.until(lambda: world.coordinator.over)
    assert set(world.states.values()) == {"stopped"}
    assert (world.condition, reason_of(world.data["condition"])) == ("Stopped", "stopped by me")
    requests = [(reason_of(line), line["by"]) for line in world.events if line["kind"] == "request"]
    assert requests == [("stop", "me@pc")]


def stopped_without_d() -> World:
    """A run that was stopped while host d was away."""
    world = async_ps()
    world.cut.add("d")
    world.run_for(15)
    world.ask_to_end("a", made(How, by="me@pc", grace_s=3.0, **because([fact("stopped_by", by="me")])))
    world.run_for(60)
    return world


def test_a_host_that_is_away_when_the_run_ends_is_waited_for_but_not_for_ever() -> None:
    world = stopped_without_d()
    assert world.states["worker:0"] == "running"
    assert not world.coordinator.over
    world.wall += 86400
    world.until(lambda: world.coordinator.over)


def test_host_that_reconnects_after_the_end_is_notified() -> None:
    world = stopped_without_d()
    world.cut.clear()
    world.until(lambda: world.coordinator.over)
    assert world.states["worker:0"] == "stopped"


@pytest.mark.parametrize("by", ["coordinator", "train@laptop"])
def test_of_two_intents_with_the_same_version_one_comes_to_hold_everywhere(by: str) -> None:
    """An order of a coordinator that died before it wrote it down; or what a person asked for meanwhile."""
    world = async_ps()
    intent = world.tasks["worker:1"].intent
    theirs, mine = ("hold", "run") if by == "coordinator" else ("stop", "run")
    world.restart_coordinator()
    intents.change(intent, want=theirs, by=by)
    world.coordinator.view.wanted(["worker:1"], want=mine)
    assert intent["version"] == world.data["intents"]["worker:1"]["version"]
    world.run_for(3)
    held = world.data["intents"]["worker:1"]
    assert held["want"] == world.tasks["worker:1"].intent["want"] == ("run" if by == "coordinator" else "stop")
    assert held["version"] == world.tasks["worker:1"].intent["version"]


def test_a_run_whose_view_was_lost_waits_for_hosts_that_are_away() -> None:
    """It was under way: a host that is out of touch is no mistake of a first start."""
    world = async_ps()
    world.cut.add("e")
    world._make_coordinator(first_view(world.spec, world.wall))
    world.coordinator.rebuild(fact("asked_up"), world.wall)
    world.run_for(200)
    assert world.condition != "Failed"
    world.cut.clear()
    world.until(lambda: recovered(world))
    assert set(world.attempts.values()) == {1}
