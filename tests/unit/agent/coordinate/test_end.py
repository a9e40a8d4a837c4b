"""How a run ends: by whom its success is decided, who is ended then, and that no host is forgotten."""

from __future__ import annotations

from tests.unit.agent.coordinate.world import async_ps


def test_success_of_the_lead_ends_the_run_and_ps_last() -> None:
    world = async_ps()
    world.die("chief:0", code=0)
    world.run_for(1)
    assert world.condition == "Succeeded"
    assert world.states["worker:0"] == "running"  # it may come to its own end
    world.die("worker:0", "worker:1", code=0)
    world.until(lambda: world.coordinator.over)
    assert world.data["phase"] == "ended"
    assert world.states == {
        "ps:0": "stopped",
        "ps:1": "stopped",
        "chief:0": "succeeded",
        "worker:0": "succeeded",
        "worker:1": "succeeded",
    }


def test_nothing_is_restarted_after_the_success() -> None:
    world = async_ps()
    world.die("chief:0", code=0)
    world.run_for(1)
    world.die("worker:0")
    world.die("ps:0")
    world.until(lambda: world.coordinator.over, 90)
    assert set(world.attempts.values()) == {1}
    assert world.condition == "Succeeded"


def test_a_success_short_of_its_target_is_told_with_a_warning() -> None:
    world = async_ps(target_step=1000)
    world.checkpoint = 700
    world.die("chief:0", code=0)
    world.run_for(1)
    assert world.condition == "Succeeded"
    assert world.data["warnings"] == [
        "the newest complete checkpoint is of step 700, short of the 1000 that were asked for"
    ]


def test_workers_that_serve_the_lead_are_not_waited_for_and_end_after_it() -> None:
    world = async_ps(strategy="ps-strategy")
    world.die("chief:0", code=0)
    world.until(lambda: world.coordinator.over, limit_s=5)  # none of the settling time, 30 s
    assert world.condition == "Succeeded"

    world = async_ps(strategy="ps-strategy")
    world.tasks["chief:0"].stubborn = True
    world.request("stop")
    world.run_for(3)
    assert (world.states["chief:0"], world.states["worker:0"]) == ("running", "running")
    world.tasks["chief:0"].stubborn = False
    world.until(lambda: world.coordinator.over)
    assert set(world.states.values()) == {"stopped"}


def test_one_task_is_stopped_and_started_again_on_request() -> None:
    world = async_ps()
    world.request("stop", ["worker:1"])
    world.run_for(2)
    assert world.states["worker:1"] == "stopped"
    assert world.condition == "Running"
    world.request("restart", ["worker:1"])
    world.run_for(2)
    assert (world.states["worker:1"], world.attempts["worker:1"]) == ("running", 2)
    assert world.data["restarts"] == 0


def test_a_stopped_lead_is_said_to_be_stopped_and_can_come_back() -> None:
    world = async_ps()
    world.request("stop", ["chief:0"])
    world.run_for(2)
    assert world.condition == "Stopped"
    assert world.states["worker:0"] == "running"
    world.request("restart", ["chief:0"])
    world.run_for(3)
    assert world.condition == "Running"


def test_past_its_deadline_a_run_has_failed() -> None:
    world = async_ps(active_deadline_s=300.0)
    world.until(lambda: world.coordinator.over, 310)
    assert world.condition == "Failed"
    assert "deadline" in world.data["condition"]["reason"]


def test_a_machine_that_slept_has_not_used_up_the_deadline() -> None:
    world = async_ps(active_deadline_s=300.0)
    world.now += 10_000
    world.wall += 10_000
    world.run_for(5)
    assert world.condition == "Running"


def test_a_stop_after_the_success_waits_for_nobody_and_the_run_has_still_succeeded() -> None:
    world = async_ps()
    world.die("chief:0", code=0)
    world.run_for(1)
    world.request("stop")
    world.run_for(3)
    assert world.coordinator.over
    assert world.condition == "Succeeded"
