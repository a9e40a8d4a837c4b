"""Hangs that stand behind other losses, and incidents that must come to an end: single stories of a run in memory."""

from __future__ import annotations

import pytest

from dtctl.agent.records.reasons import headline
from tests.unit.agent.coordinate.sequences import PLACES
from tests.unit.agent.coordinate.training import Trainee, Trial

pytestmark = pytest.mark.usefixtures("processes_that_train")

LONG_S = 700.0
"""More than twice as long as a task of a run without news may be silent until it is taken for hung."""

RECOVERY = {"max_restarts": 100, "max_run_restarts": 100, "backoff_min_s": 0.5, "backoff_max_s": 4.0}


def trained(strategy: str = "async-ps", seconds: float = 20.0, **recovery: object) -> Trial:
    trial = Trial(strategy, PLACES[strategy], 1, recovery={**RECOVERY, **recovery})
    trial.until(trial.is_whole)
    trial.run_for(seconds)
    return trial


def hang_before_the_first_step(trial: Trial, name: str) -> None:
    """It listens, and its first attempt comes no further."""
    task: Trainee = trial.tasks[name]  # type: ignore[assignment]
    task.busy_s, task.hangs_next = 3.0, "listens"


def test_a_worker_that_hangs_at_its_very_first_start_is_found_by_its_peers() -> None:
    trial = Trial("async-ps", {**PLACES["async-ps"], "worker:2": "f"}, 1, recovery=RECOVERY)
    trial.tasks["worker:1"].hangs_next = "starts"  # type: ignore[attr-defined]
    trial.until(lambda: trial.attempts["worker:1"] == 2, 400)
    assert trial.attempts["worker:2"] == trial.attempts["chief:0"] == 1
    trial.until(trial.is_whole)
    past = trial.tasks["worker:1"].entry["history"][0]
    assert (past["hung"], past["step"]) == (True, None)


def test_silent_task_is_ended_for_the_first_steps_of_peers_only_once() -> None:
    trial = Trial("async-ps", {**PLACES["async-ps"], "worker:2": "f"}, 1, recovery=RECOVERY)
    tell = trial._tell
    silent = trial.tasks["worker:1"]
    trial._tell = lambda process: None if process is silent.process else tell(process)  # type: ignore[attr-defined,method-assign]
    trial.run_for(LONG_S)
    assert trial.attempts["worker:1"] == 2


def test_single_idle_worker_is_found_by_the_steps_of_the_lead() -> None:
    places = {"ps:0": "a", "chief:0": "c", "worker:0": "d"}
    trial = Trial("async-ps", places, 1, recovery=RECOVERY)
    hang_before_the_first_step(trial, "worker:0")
    trial.until(lambda: trial.attempts["worker:0"] == 2, 400)
    assert trial.attempts["chief:0"] == trial.attempts["ps:0"] == 1
    trial.until(trial.is_whole)


@pytest.mark.parametrize("strategy", ["sync-ps", "collective"])
@pytest.mark.parametrize("task", ["worker:1", "the lead"])
def test_hang_of_all_tasks_at_the_first_start_is_detected_by_idleness(strategy: str, task: str) -> None:
    trial = Trial(strategy, PLACES[strategy], 1, recovery=RECOVERY)
    hanging = trial.spec["lead"] if task == "the lead" else task
    trial.checkpoint = None
    hang_before_the_first_step(trial, hanging)
    trial.until(trial.is_whole, 700)
    trainers = {name: count for name, count in trial.attempts.items() if not name.startswith("ps")}
    assert set(trainers.values()) == {2}
    assert {count for name, count in trial.attempts.items() if name.startswith("ps")} <= {1}
    assert [headline(one["why"]) for one in trial.data["incidents"]] == ["never_began"]


def test_a_ps_that_hangs_before_it_listens_after_a_restart_is_restarted_again() -> None:
    trial = trained("async-ps")
    trial.tasks["ps:1"].hangs_next = "starts"  # type: ignore[attr-defined]
    trial.end("ps:1")
    trial.until(lambda: trial.attempts["ps:1"] == 3, 330)
    trial.until(trial.is_whole)
    assert trial.tasks["ps:1"].entry["history"][-1]["hung"]
    assert trial.condition == "Running"


@pytest.mark.parametrize("gone", ["crash", "kill_agent"])
def test_a_worker_that_hangs_while_the_host_of_another_is_away_is_found(gone: str) -> None:
    trial = trained("async-ps")
    getattr(trial, gone)(trial.places["worker:0"])
    trial.run_for(60)
    trial.set_mode("worker:1", "hung")
    trial.until(lambda: trial.attempts["worker:1"] == 2, 400)
    assert trial.attempts["chief:0"] == trial.attempts["ps:0"] == 1


@pytest.mark.parametrize(
    ("strategy", "task"), [("async-ps", "ps:0"), ("collective", "worker:1"), ("sync-ps", "worker:0")]
)
def test_tasks_that_wait_for_an_away_host_are_not_taken_for_hung(strategy: str, task: str) -> None:
    trial = trained(strategy)
    trial.crash(trial.places[task])
    trial.run_for(LONG_S)
    assert {count for name, count in trial.attempts.items() if name != task} == {1}


@pytest.mark.parametrize("after_s", [0.25, 1.0, 2.0, 4.0, 8.0, 12.0])
def test_frozen_lead_restarted_by_a_person_has_recovered_when_it_trains(after_s: float) -> None:
    trial = trained(stall_s=10.0)
    trial.set_mode("chief:0", "frozen")
    trial.until(lambda: trial.states["chief:0"] != "running", 30)
    trial.run_for(after_s)
    trial.restart("chief:0")
    trial.until(trial.is_whole, 60)
    assert trial.condition == "Running"


def test_next_coordinator_knows_the_order_of_one_that_died_after_it() -> None:
    """The incident on its disk still waits for a task that was let start already."""
    trial = trained()
    trial.end("chief:0")
    trial.until(lambda: trial.data["incidents"][-1:] != [] and trial.states["chief:0"] == "pending")
    before = trial._saved
    trial.until(lambda: trial.states["chief:0"] == "running")
    trial.kill_agent("c")
    trial.tick()
    trial._saved = before
    trial.start_agent("c")
    trial.until(trial.is_whole, 60)


def test_a_ps_that_leaves_while_its_own_loss_is_still_open_is_started_again() -> None:
    trial = trained()
    trial.set_mode("chief:0", "hung")
    trial.set_mode("worker:0", "hung")
    trial.set_mode("worker:1", "hung")
    trial.end("ps:0")
    trial.until(lambda: trial.attempts["ps:0"] == 2 and trial.states["ps:0"] == "running")
    trial.run_for(5)
    trial.end("ps:0", code=0)
    trial.until(lambda: trial.attempts["ps:0"] == 3, 60)


def test_a_task_that_hangs_before_it_listens_does_not_excuse_itself() -> None:
    trial = trained("collective")
    trial.tasks["worker:2"].hangs_next = "starts"  # type: ignore[attr-defined]
    trial.end("worker:2")
    trial.until(lambda: trial.attempts["worker:2"] == 3, 400)
    trial.until(trial.is_whole)


@pytest.mark.parametrize("crashes", [True, False])
def test_a_ps_that_leaves_while_the_coordinators_host_is_gone_heals(crashes: bool) -> None:
    for strategy in ("async-ps", "sync-ps", "ps-strategy"):
        trial = trained(strategy, stall_s=10.0)
        if crashes:
            trial.crash("c")
        else:
            trial.cut.add("c")
        trial.run_for(10)
        trial.end("ps:0", code=0)
        trial.run_for(88)
        trial.cut.clear()
        if crashes:
            trial.boot("c")
        trial.until(trial.is_whole, 400)


def test_tasks_cut_off_from_the_coordinator_are_not_taken_for_hung() -> None:
    """Its host is the lead's, and who waits for the lead does not hang."""
    trial = trained("sync-ps", stall_s=10.0)
    trial.cut.add("c")
    trial.run_for(98)
    trial.cut.clear()
    trial.until(trial.is_whole, 60)
    assert trial.attempts["worker:0"] == trial.attempts["worker:1"] == 1


@pytest.mark.parametrize("cut", ["worker", "ps"])
def test_a_worker_that_a_cut_leaves_hanging_is_restarted_after_a_minute(cut: str) -> None:
    trial = trained("async-ps")
    host = trial.places["worker:1" if cut == "worker" else "ps:0"]
    trial.cut.add(host)
    trial.run_for(12)
    trial.set_mode("worker:1", "hung")
    trial.run_for(6)
    trial.cut.clear()
    trial.until(lambda: trial.attempts["worker:1"] == 2, 100)
    trial.until(trial.is_whole, 60)
    assert {count for name, count in trial.attempts.items() if name != "worker:1"} == {1}


def test_collective_with_a_task_that_never_listens_restarts_after_two_minutes() -> None:
    trial = Trial("collective", PLACES["collective"], 1, recovery=RECOVERY)
    trial.checkpoint = None
    trial.tasks["worker:1"].hangs_next = "starts"  # type: ignore[attr-defined]
    trial.until(trial.is_whole, 200)
    assert set(trial.attempts.values()) == {2}
