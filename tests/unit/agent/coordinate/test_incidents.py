"""A loss, from the moment in which it is noticed to the one in which the run trains again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.coordinate.stalls import Beginning, in_vain, whom_to_restart
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import because, fact
from dtctl.agent.records.run_state import Past
from dtctl.agent.records.values import Loss
from dtctl.agent.records.whole_run import MOST_INCIDENTS, MOST_WARNINGS, Incident, has_steps
from dtctl.agent.run.hangs import APART_S, IDLE_S, NEVER_BEGAN_S
from tests.reasons import reason_of
from tests.unit.agent.coordinate import views

WHY = [fact("killed", signal=9)]


def lost(view: View, task: str, *others: str, wall: float = 1010.0) -> Incident:
    return view.open_incident(task, {"attempt": 3, "ended": 1009.0}, "exit", WHY, [task, *others], wall)


def test_incident_records_lost_tasks_and_time() -> None:
    view = views.running()
    views.reported(view, "worker:0", step=40)
    one = lost(view, "ps:0", "chief:0")
    assert view.data["incidents"] == [one]
    assert (one["id"], one["task"], one["host"], one["scope"]) == (1, "ps:0", "a", "task")
    assert (one["attempt"], one["ended"], one["noticed"]) == (3, 1009.0, 1010.0)
    assert (one["tasks"], one["step"], reason_of(one)) == (["ps:0", "chief:0"], 40, "killed by SIGKILL")
    assert (one["begun"], one["recovered"], one["given_up"], one["back_to"]) == (None, None, None, None)
    assert lost(view, "ps:1")["id"] == 2
    del view.data["incidents"][0]
    assert lost(view, "ps:1")["id"] == 3


@pytest.mark.parametrize(
    ("task", "others", "own"), [("worker:0", (), True), ("worker:0", ("worker:1",), False), ("ps:0", (), False)]
)
def test_restart_that_affects_no_other_task_is_decided_by_the_agent(
    task: str, others: tuple[str, ...], own: bool
) -> None:
    assert lost(views.running(), task, *others)["own"] is own


def test_incident_is_open_until_recovered_or_closed_and_waits_until_it_begins() -> None:
    view = views.running()
    recovered, closed, begun, waiting = (lost(view, "ps:0") for _ in range(4))
    recovered["recovered"] = 1020.0
    closed["given_up"] = because([fact("lost_again", task="ps:0")])
    view.begin_incident(begun, 1020.0)
    assert list(view.open_incidents()) == [begun, waiting]
    assert list(view.waiting_incidents()) == [waiting]


def test_the_newest_open_incident_of_a_task_counts() -> None:
    view = views.running()
    first, second, third = lost(view, "ps:0"), lost(view, "ps:1", "ps:0"), lost(view, "ps:0")
    assert view.incident_of("ps:0") is third
    third["given_up"] = because([fact("run_failed")])
    assert view.incident_of("ps:0") is second
    second["recovered"] = 1020.0
    assert view.incident_of("ps:0") is first
    assert view.incident_of("ps:1") is None
    assert view.incident_of("worker:0") is None


def test_its_tasks_are_back_once_it_has_begun_and_each_is_ready_or_at_its_end() -> None:
    view = views.running()
    one = lost(view, "worker:0", "worker:1")
    assert not view.is_back(one)
    view.begin_incident(one, 1011.0)
    assert view.is_back(one)
    views.reported(view, "worker:0", ready=False)
    assert not view.is_back(one)
    views.reported(view, "worker:0", state="succeeded")
    assert view.is_back(one)


def test_run_without_steps_has_recovered_when_its_tasks_run() -> None:
    view = views.running()
    one = lost(view, "worker:0")
    assert not view.trains_again(one)
    view.begin_incident(one, 1011.0)
    assert (one["begun"], one["steps_at_restart"]) == (1011.0, {})
    assert not has_steps(one)
    assert view.trains_again(one)


def test_run_with_steps_has_recovered_at_the_next_step_of_any_task() -> None:
    view = views.running()
    views.reported(view, "worker:1", step=40)
    one = lost(view, "worker:0")
    assert has_steps(one)
    view.note_steps()
    view.begin_incident(one, 1011.0)
    assert one["steps_at_restart"] == {"worker:1": 40}
    assert not view.trains_again(one)
    views.reported(view, "ps:0", step=3)
    view.note_steps()
    assert not view.trains_again(one), "a ps does not train"
    views.reported(view, "chief:0", step=1)
    view.note_steps()
    assert view.trains_again(one)
    views.reported(view, "worker:0", ready=False)
    assert not view.trains_again(one)


def test_step_from_before_the_incident_shows_that_the_run_reports_steps() -> None:
    view = views.running()
    one = lost(view, "worker:0")
    views.reported(view, "worker:1", step=40)
    view.note_steps()
    view.begin_incident(one, 1011.0)
    assert (one["step"], has_steps(one)) == (None, True)
    assert not view.trains_again(one)


def test_recovery_lasts_until_every_incident_is_closed() -> None:
    view = views.running("sync-ps")
    assert view.is_recovering() is False
    first, second = lost(view, "worker:0"), lost(view, "worker:1")
    assert view.is_recovering() is True
    view.begin_incident(first, 1011.0)
    assert view.is_recovering() is True
    view.begin_incident(second, 1011.0)
    assert view.is_recovering() is False


PAST = made(Past, attempt=1, started=1000.0, ended=1001.0, asked=False, signal=9)


def idle(**fields: Any) -> View:
    """Everybody is ready, has reported no step, and does nothing."""
    view = views.running("sync-ps", **fields)
    views.reported(view, *view.tasks, idle_since=1000.0)
    return view


def judged(view: View) -> float | None:
    """What is seen of it after it has stood like this for just as long as may be."""
    beginning = Beginning()
    assert beginning.update(view, 100.0) is None
    return beginning.update(view, 100.0 + NEVER_BEGAN_S)


def lose(view: View, loss: Loss = "hung") -> Any:
    return view.open_incident("worker:0", {"attempt": 1, "ended": 1000.0}, loss, WHY, ["worker:0"], 1001.0)


def test_failed_restarts_of_all_tasks_are_counted_backwards() -> None:
    view = views.running()
    assert in_vain(view) == 0

    lose(view, "still_silent")
    lose(view, "ps_ended")
    assert in_vain(view) == 0
    lose(view, "still_silent")
    mended = lose(view, "still_silent")
    assert in_vain(view) == 2
    mended["recovered"] = 1020.0
    assert in_vain(view) == 0
    lose(view, "still_silent")
    assert in_vain(view) == 1


def test_run_with_all_tasks_idle_for_ten_minutes_never_began() -> None:
    beginning, view = Beginning(), idle()
    assert beginning.update(view, 100.0) is None
    assert beginning.update(view, 100.0 + NEVER_BEGAN_S - 0.1) is None
    assert beginning.update(view, 100.0 + NEVER_BEGAN_S) == NEVER_BEGAN_S
    assert beginning.update(view, 101.0 + NEVER_BEGAN_S) == NEVER_BEGAN_S + 1


def test_a_shorter_limit_of_the_start_holds_for_a_run_that_never_began() -> None:
    beginning, view = Beginning(), idle()
    view.spec["start_timeout_s"] = 60.0
    assert beginning.update(view, 100.0) is None
    assert beginning.update(view, 159.0) is None
    assert beginning.update(view, 160.0) == 60.0


def test_work_of_any_task_resets_the_ten_minutes() -> None:
    beginning, view = Beginning(), idle()
    beginning.update(view, 100.0)
    views.reported(view, "worker:0", idle_since=None)
    beginning.update(view, 300.0)
    views.reported(view, "worker:0", idle_since=1200.0)
    assert beginning.update(view, 100.0 + NEVER_BEGAN_S) is None
    assert beginning.update(view, 100.0 + 2 * NEVER_BEGAN_S) == NEVER_BEGAN_S


def reported(*tasks: str, **entry: Any) -> Callable[[View], object]:
    return lambda view: views.reported(view, *tasks, **entry)


def limits(**recovery: float | None) -> Callable[[View], object]:
    return lambda view: view.recovery.update({"first_step_s": None, "stall_s": None, **recovery})  # type: ignore[typeddict-item]


def with_ended_and_evaluator(view: View) -> None:
    views.reported(view, "worker:0", state="succeeded", idle_since=None)
    view.roster["worker:1"]["role"] = "evaluator"
    views.reported(view, "worker:1", idle_since=None)


def restarted_for_that(view: View) -> None:
    lose(view, "never_began")["given_up"] = because([])
    lose(view)["given_up"] = because([])


ACTIVE: dict[str, dict[str, Any]] = {
    "works": {"idle_since": None},
    "is not there": {"state": "starting"},
    "has reported a step": {"step": 0},
    "has reported one before": {"history": [PAST, {**PAST, "step": 0}]},
}
IDLE: dict[str, tuple[Callable[[View], object], bool]] = {
    **{f"{task} does not listen yet": (reported(task, ready=False), True) for task in ("ps:0", "chief:0", "worker:1")},
    **{
        f"{task} {what}": (reported(task, **entry), False)
        for task in ("ps:0", "chief:0", "worker:1")
        for what, entry in ACTIVE.items()
    },
    "an earlier attempt reported no step": (reported("worker:1", history=[PAST]), True),
    "ended tasks and evaluators need not be idle": (with_ended_and_evaluator, True),
    "no trainer is left": (reported("ps:0", "ps:1", "chief:0", "worker:0", "worker:1", state="stopped"), False),
    "a task recovers": (lose, False),
    "a task has recovered": (lambda view: lose(view).update(recovered=1002.0), True),
    "it was restarted for that": (restarted_for_that, False),
    "no limits": (limits(), True),
    "a limit for stalls": (limits(stall_s=20.0), True),
    "stalls are not judged": (limits(stall_s=0.0), False),
    "first steps are not judged": (limits(first_step_s=0.0), False),
    "a limit for first steps": (limits(first_step_s=900.0), False),
    "no server is known": (lambda view: view.roster["chief:0"].update({"listens": False}), False),
    "the lead is not of this host": (lambda view: view.spec["tasks"].clear(), True),
}


@pytest.mark.parametrize("case", IDLE)
def test_run_never_began_if_all_that_train_are_idle_without_a_step(case: str) -> None:
    change, never_began = IDLE[case]
    view = idle()
    change(view)
    assert (judged(view) is not None) is never_began


def test_all_training_tasks_restart_and_ps_tasks_only_with_a_checkpoint() -> None:
    view = idle()
    view.roster["worker:1"]["role"] = "evaluator"
    assert set(whom_to_restart(view, saved=True)) == {"chief:0", "worker:0", "ps:0", "ps:1"}
    assert set(whom_to_restart(view, saved=False)) == {"chief:0", "worker:0"}


def test_stopped_task_is_not_restarted_with_the_others() -> None:
    view = idle()
    view.wanted(["worker:1"], want="stop")
    assert set(whom_to_restart(view, saved=False)) == {"chief:0", "worker:0"}


COMPLAINT = {"text": "Waiting for 1/2 tasks to connect.", "since": 1000.0, "last": 1000.0}
PROBLEM = {"text": "No space left on device", "since": 1000.0, "last": 1000.0}


@pytest.mark.parametrize(
    ("change", "limit_s"),
    [
        (reported("worker:1", ready=False), IDLE_S),
        (reported("worker:0", complaint=COMPLAINT), IDLE_S),
        (reported("worker:0", complaint=PROBLEM), NEVER_BEGAN_S),
        (reported("worker:0", "worker:1", "chief:0", "ps:0", "ps:1", ready=False), NEVER_BEGAN_S),
        (lambda view: None, NEVER_BEGAN_S),
    ],
    ids=["one does not listen", "one waits for others", "another complaint", "all alike", "nothing is known"],
)
def test_a_start_that_waits_for_a_peer_is_restarted_after_two_minutes(change: Any, limit_s: float) -> None:
    beginning, view = Beginning(), idle()
    change(view)
    assert beginning.update(view, 100.0) is None
    assert beginning.update(view, 99.0 + limit_s) is None
    assert beginning.update(view, 100.0 + limit_s) == limit_s


@pytest.mark.parametrize("listens", [True, False], ids=["TensorFlow", "DDP"])
def test_a_task_that_is_idle_well_before_its_peers_is_what_they_wait_for(listens: bool) -> None:
    beginning, view = Beginning(), idle()
    view.roster["chief:0"]["listens"] = listens
    views.reported(view, "chief:0", "worker:0", idle_since=None)
    assert beginning.update(view, 100.0) is None
    views.reported(view, "chief:0", "worker:0", idle_since=1010.0)
    views.reported(view, "worker:1", idle_since=1000.0)
    assert beginning.update(view, 100.0 + APART_S) is None
    assert beginning.update(view, 100.0 + APART_S + IDLE_S) == IDLE_S


def test_servers_that_are_idle_from_the_start_are_not_what_a_start_waits_for() -> None:
    beginning, view = Beginning(), idle()
    views.reported(view, "chief:0", "worker:0", "worker:1", idle_since=None)
    beginning.update(view, 100.0)
    views.reported(view, "chief:0", "worker:0", "worker:1", idle_since=1060.0)
    assert beginning.update(view, 160.0) is None
    assert beginning.update(view, 159.0 + NEVER_BEGAN_S) is None


def test_open_incidents_are_kept_and_the_oldest_of_those_that_are_over_forgotten() -> None:
    view = views.running()
    waiting = [lost(view, "ps:0") for _ in range(MOST_INCIDENTS + 50)]
    over = [lost(view, "ps:1") for _ in range(MOST_INCIDENTS + 7)]
    for one in over:
        one["recovered"] = 1020.0
    view.forget_incidents()
    assert view.data["incidents"] == [*waiting, *over[7:]]
    assert list(view.waiting_incidents()) == waiting


def test_a_warning_about_each_of_many_hosts_is_set_once() -> None:
    view = views.running()
    hosts = [f"h{number}" for number in range(3 * MOST_WARNINGS)]
    for _ in range(2):
        changed = [view.replace_alert("agent_gone", fact("agent_gone", host=host), host) for host in hosts]
    assert not any(changed), "the oldest were forgotten, and are new each time"
    for number in range(MOST_WARNINGS + 5):
        view.warn([fact("said", text=str(number))])
    assert len(view.data["alerts"]) == len(hosts) + MOST_WARNINGS
    assert view.data["alerts"][-1]["why"] == [fact("said", text=str(MOST_WARNINGS + 4))]
