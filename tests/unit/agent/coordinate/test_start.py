"""The start of a run: who starts when, and what is said of a start that does not come about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.coordinate import lifecycle
from dtctl.agent.coordinate.view import first_view
from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.records.reasons import because, fact
from dtctl.agent.records.spec import Spec, inventory_of
from dtctl.agent.run import intents
from tests.reasons import reason_of, warnings_of
from tests.unit.agent.coordinate.world import World, async_ps, spec_of

PLACES = {"ps:0": "a", "chief:0": "b", "worker:0": "c", "worker:1": "d", "evaluator:0": "d"}


@pytest.mark.parametrize(("held", "state"), [(True, "pending"), (False, "running")])
def test_a_start_lasts_until_ps_listens_and_the_wait_is_explained(held: bool, state: str) -> None:
    world = World("async-ps", PLACES, held=held)
    world.tasks["ps:0"].ready_s = 45.0
    world.run_for(40)
    assert world.states["chief:0"] == state
    assert reason_of(world.data["waits_for"]) == "ps:0 is loading"
    assert world.data["phase"] == "starting"
    world.run_for(20)
    assert set(world.states.values()) == {"running"}


def test_a_host_that_never_reaches_the_coordinator_fails_the_start_within_a_minute() -> None:
    world = World("async-ps", PLACES)
    world.cut.add("d")
    world.until(lambda: world.data["phase"] == "ended", 90)
    assert world.condition == "Failed"
    assert "firewall" in reason_of(world.data["condition"])
    assert not any(world.attempts.values())


def test_hosts_that_connect_late_are_awaited_until_the_limit_of_the_start() -> None:
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
    assert "firewall" in reason_of(world.data["condition"])


def test_a_task_that_never_listens_fails_the_start_by_name() -> None:
    world = World("async-ps", PLACES, start_timeout_s=120.0)
    world.tasks["ps:0"].ready_s = 1e9
    world.run_for(5)
    world.die("worker:1", code=1)
    world.until(lambda: world.data["phase"] == "ended", 200)
    assert world.data["condition"]["cause"] == "ps:0"
    assert reason_of(world.data["condition"]) == "not ready after 120 s: ps:0 is loading"
    assert (world.states["ps:0"], world.states["worker:1"]) == ("stopped", "stopped")


def test_a_run_whose_controller_is_lost_during_the_start_is_taken_back_everywhere() -> None:
    world = starting()
    world.lost_session = True
    world.run_for(1)
    world.until(lambda: world.data["phase"] == "ended")
    assert world.condition == "Failed"
    assert "controller" in reason_of(world.data["condition"])
    assert set(world.states.values()) == {"stopped"}


def starting() -> World:
    """No host keeps the run yet; all are in touch."""
    world = World("async-ps", PLACES)
    world.kept = False
    world.run_for(3)
    assert world.kept_on == set()
    return world


def test_hosts_without_the_controller_keep_a_run_that_the_coordinators_host_keeps() -> None:
    world = starting()
    world.lost_session_on.update("acd")
    world.run_for(60)
    assert (world.condition, world.kept_on) == ("Running", set())
    world.kept_on.add("b")
    world.cut.add("d")
    world.run_for(1)
    assert world.kept_on == {"a", "b", "c"}
    world.cut.discard("d")
    world.restart_coordinator()
    world.run_for(1)
    assert world.kept_on == {"a", "b", "c", "d"}
    assert (world.condition, set(world.states.values())) == ("Running", {"running"})


def test_start_rolled_back_by_the_coordinators_host_ends_everywhere_before_it() -> None:
    world = starting()
    world.lost_session_on.update("acd")
    world.cut.add("d")
    world.roll_back("b", "session_lost")
    world.run_for(60)
    assert {task: state for task, state in world.states.items() if PLACES[task] == "d"} == {
        "worker:1": "running",
        "evaluator:0": "running",
    }
    assert {state for task, state in world.states.items() if PLACES[task] != "d"} == {"stopped"}
    assert not world.coordinator.over, "d may take the run for kept"
    world.cut.discard("d")
    world.until(lambda: world.coordinator.over, 30)
    assert set(world.states.values()) == {"stopped"}
    assert (world.condition, world.kept_on) == ("Stopped", set())


@pytest.mark.parametrize(
    ("came", "kind", "least_s", "most_s"),
    [(True, "session_lost", 5.0, 8.0), (False, "session_lost", 10.0, 12.0), (False, "rolled_back", 1.0, 4.0)],
    ids=["a host that has rolled back", "a host that was not heard", "a host that the controller has cancelled"],
)
def test_a_coordinator_that_is_rolled_back_waits_briefly_for(
    came: bool, kind: str, least_s: float, most_s: float
) -> None:
    world = World("async-ps", PLACES)
    world.kept = False
    began = world.now
    if came:
        world.run_for(3)
        world.roll_back("d", kind)
        world.run_for(1)
    world.crash("d")
    world.run_for(1)
    world.roll_back("b", kind)
    world.until(lambda: world.coordinator.over, 30)
    assert least_s <= world.now - began <= most_s


def test_failure_before_the_peers_are_ready_is_retried_with_them_uncounted() -> None:
    world = World("async-ps", PLACES, recovery={"max_restarts": 0, "max_run_restarts": 0})
    world.tasks["ps:0"].ready_s = 30.0
    world.run_for(5)
    world.die("worker:1", "chief:0", code=1)
    world.run_for(10)
    assert (world.states["worker:1"], world.states["chief:0"]) == ("backoff", "backoff")
    assert reason_of(world.tasks["worker:1"].entry) == "exit code 1; the tasks that it needs were not ready"
    assert reason_of(world.data["waits_for"]) == "ps:0 is loading"
    world.run_for(20)
    assert set(world.states.values()) == {"running"}
    assert (world.attempts["worker:1"], world.attempts["chief:0"], world.attempts["worker:0"]) == (2, 2, 1)
    assert (world.data["restarts"], world.data["incidents"], world.decisions) == (0, [], [])


def test_end_at_the_time_the_peers_are_ready_counts_as_early_once() -> None:
    log = "ConnectionRefusedError: [Errno 111]"
    world = World("async-ps", PLACES)
    world.until(lambda: any(world.attempts.values()))
    world.until(lambda: not any(intent["early"] for intent in world.data["intents"].values()))
    world.die("worker:1", code=1, log=log)
    world.run_for(1)
    assert (world.states["worker:1"], world.attempts["worker:1"], world.data["restarts"]) == ("running", 2, 0)
    world.die("worker:1", code=1, log=log)
    world.run_for(2)  # another task may have failed first
    assert world.data["restarts"] == 1


def test_a_mistake_of_the_program_fails_the_start_at_once() -> None:
    world = World("async-ps", PLACES)
    world.tasks["ps:0"].ready_s = 30.0
    world.run_for(2)
    world.die("worker:1", code=2)
    world.run_for(0.5)
    assert (world.condition, world.data["condition"]["cause"]) == ("Failed", "worker:1")


def test_success_short_of_its_target_has_a_warning() -> None:
    world = async_ps(target_step=1000)
    world.checkpoint = 700
    world.die("chief:0", code=0)
    world.run_for(1)
    assert world.condition == "Succeeded"
    assert warnings_of(world.data) == [
        "the newest complete checkpoint is of step 700, short of the 1000 that were asked for"
    ]


def test_success_whose_logs_end_short_of_its_target_has_a_warning() -> None:
    world = async_ps(target_step=1000)
    world.checkpoint = None
    world.tell_step("chief:0", 2)
    world.die("chief:0", code=0)
    world.run_for(1)
    assert world.condition == "Succeeded"
    assert warnings_of(world.data) == ["the last step in the logs is 2, short of the 1000 that were asked for"]


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
    assert "deadline" in reason_of(world.data["condition"])


def test_a_machine_that_slept_has_not_used_up_the_deadline() -> None:
    world = async_ps(active_deadline_s=300.0)
    world.now += 10_000
    world.wall += 10_000
    world.run_for(5)
    assert world.condition == "Running"


def test_stop_after_the_success_does_not_wait_and_keeps_the_outcome() -> None:
    world = async_ps()
    world.die("chief:0", code=0)
    world.run_for(1)
    world.request("stop")
    world.run_for(3)
    assert world.coordinator.over
    assert world.condition == "Succeeded"


ABSENT_PLACES = {"ps:0": "a", "ps:1": "b", "chief:0": "c", "worker:0": "d", "worker:1": "e"}


def without_e(**fields: Any) -> World:
    """It has started, and e was never there."""
    world = World(fields.pop("strategy", "async-ps"), ABSENT_PLACES, absent=["e"], **fields)
    world.coordinator.begin(world.wall)
    world.crash("e")
    world.until(lambda: all(world.tasks[task].entry["ready"] for task in list(ABSENT_PLACES)[:4]))
    world.run_for(1.0)
    return world


def test_run_starts_without_an_absent_host() -> None:
    world = without_e()
    assert world.data["phase"] == "running"
    assert world.condition == "Running"
    assert reason_of(world.data["condition"]) == "4 of 5 tasks run"
    assert world.data["waits_for"]["why"] == []
    assert "the run begins without e" in [reason_of(line) for line in world.events]


def test_absent_host_counts_for_no_deadline_and_no_recovery() -> None:
    world = without_e(start_timeout_s=20.0, recovery={"host_timeout_s": 30.0})
    world.run_for(120)
    assert world.condition == "Running"
    assert not any(world.recovering.values())


@pytest.mark.parametrize(
    ("end", "condition"),
    [
        (lambda world: world.die("chief:0", "worker:0", code=0), "Succeeded"),
        (lambda world: world.request("stop"), "Stopped"),
        (lambda world: world.request("stop", list(ABSENT_PLACES)[:4]), "Stopped"),
    ],
    ids=["success", "stop", "stop of each task that is there"],
)
def test_run_ends_without_waiting_for_an_absent_host(end: Callable[[World], None], condition: str) -> None:
    world = without_e()
    end(world)
    world.until(lambda: world.coordinator.over, 5)
    assert (world.condition, world.data["phase"]) == (condition, "ended")


def test_absent_worker_does_not_delay_success_of_all_workers() -> None:
    world = without_e(success="all-workers")
    for member in world.spec["roster"]:
        member["decides"] = member["role"] in ("lead", "worker")
    world.coordinator.view.data["hosts"]["e"]["absent"] = True
    world.die("chief:0", "worker:0", code=0)
    world.until(lambda: world.condition == "Succeeded", 5)


def test_restart_of_an_absent_hosts_task_is_held() -> None:
    world = without_e()
    world.request("restart", ["worker:1", "worker:0"])
    world.until(lambda: world.attempts["worker:0"] == 2)
    assert world.data["intents"]["worker:1"]["want"] == "hold"


def test_restart_of_all_tasks_does_not_wait_for_an_absent_host() -> None:
    world = without_e(strategy="sync-ps")
    world.die("ps:0")
    world.until(lambda: all(world.attempts[task] == 2 for task in list(ABSENT_PLACES)[:4]))
    assert world.condition in ("Restarting", "Running")


def test_absent_host_that_connects_joins_and_starts_at_once() -> None:
    world = without_e()
    world.run_for(300)
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)
    assert not world.data["hosts"]["e"]["absent"]
    assert "e has joined the run, which had begun without it" in [reason_of(line) for line in world.events]
    world.run_for(2)
    assert reason_of(world.data["condition"]) == "5 of 5 tasks run"
    world.die("worker:1")
    world.until(lambda: world.attempts["worker:1"] == 2)


def test_host_that_joined_is_reported_when_it_is_away() -> None:
    world = without_e()
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)
    world.crash("e")
    world.run_for(2)
    assert any(reason_of(line).startswith("e is unreachable") for line in world.events)


def test_next_coordinator_does_not_wait_for_an_absent_host() -> None:
    world = without_e()
    world.restart_coordinator()
    world.run_for(60)
    assert world.condition == "Running"
    assert not any(reason_of(line).startswith("e is unreachable") for line in world.events)
    rebuilt = first_view(world.spec, world.wall)
    assert [host for host, known in rebuilt["hosts"].items() if known["absent"]] == ["e"]


@pytest.mark.parametrize("heard", [True, False])
def test_host_whose_join_is_cancelled_is_absent_and_may_join_again(heard: bool) -> None:
    """`heard`: it has said so; else its controller was lost, which ends its tasks and no others."""
    world = without_e()
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)
    if heard:
        stopped = {"want": "stop", "grace_s": 0.0, "ends_as": intents.CANCELLED, **because([fact("rolled_back")])}
        intents.change(world.tasks["worker:1"].intent, **stopped)
        world.until(lambda: world.states["worker:1"] == "stopped", 5)
    else:
        world.lost_session_on.add("e")
        world.run_for(1)
    assert world.condition == "Running", "the run is no part of it"
    world.crash("e")
    world.run_for(2)
    assert world.data["hosts"]["e"]["absent"]
    assert not any(world.recovering.values()), "nobody waits for it"
    assert "e is out of the run again: its `up` was cancelled" in [reason_of(line) for line in world.events]
    world.lost_session_on.clear()
    anew = World("async-ps", ABSENT_PLACES, absent=["e"]).tasks["worker:1"]
    world.tasks["worker:1"] = anew
    world.boot("e")
    world.until(lambda: world.states["worker:1"] == "running", 5)


def test_no_run_is_without_its_coordinators_host_or_a_stranger() -> None:
    for host in ("c", "nowhere"):
        with pytest.raises(InvalidValue, match="absent"):
            checked(Spec, spec_of("async-ps", ABSENT_PLACES, absent=[host]))
    assert inventory_of(spec_of("async-ps", ABSENT_PLACES, absent=["e"]))["absent"] == ["e"]
