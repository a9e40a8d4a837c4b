"""A run that has never begun to train, or is silent after a loss: whether it is restarted as a whole."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate.hangs import NEVER_BEGAN, NEVER_BEGAN_S, Beginning, in_vain, whom_to_restart
from dtctl.agent.coordinate.incidents import opened
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import Past
from tests.unit.agent.coordinate import views

PAST = made(Past, attempt=1, started=1000.0, ended=1001.0, asked=False, signal=9)


def idle(**fields: Any) -> View:
    """Everybody is ready, has reported no step, and does nothing."""
    view = views.running("sync-ps", **fields)
    views.told(view, *view.tasks, idle_since=1000.0)
    return view


def judged(view: View) -> float | None:
    """What is seen of it after it has stood like this for just as long as may be."""
    beginning = Beginning()
    assert beginning.update(view, 100.0) is None
    return beginning.update(view, 100.0 + NEVER_BEGAN_S)


def lose(view: View, kind: str = "stalled") -> Any:
    return opened(view, "worker:0", {"attempt": 1, "ended": 1000.0}, [fact(kind, seconds=1.0)], ["worker:0"], 1001.0)


def test_restarts_of_everybody_in_vain_are_counted_from_the_last_back() -> None:
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


def test_a_run_in_which_nobody_has_done_anything_for_ten_minutes_never_began() -> None:
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


@pytest.mark.parametrize("task", ["ps:0", "chief:0", "worker:1"])
def test_the_one_that_hangs_may_not_listen_yet(task: str) -> None:
    view = idle()
    views.told(view, task, ready=False)
    assert judged(view) == NEVER_BEGAN_S


def test_the_ten_minutes_begin_anew_when_somebody_has_worked() -> None:
    beginning, view = Beginning(), idle()
    beginning.update(view, 100.0)
    views.told(view, "worker:0", idle_since=None)
    beginning.update(view, 300.0)
    views.told(view, "worker:0", idle_since=1200.0)
    assert beginning.update(view, 100.0 + NEVER_BEGAN_S) is None
    assert beginning.update(view, 100.0 + 2 * NEVER_BEGAN_S) == NEVER_BEGAN_S


@pytest.mark.parametrize("task", ["ps:0", "chief:0", "worker:1"])
@pytest.mark.parametrize(
    "entry",
    [{"idle_since": None}, {"state": "starting"}, {"step": 0}, {"history": [PAST, {**PAST, "step": 0}]}],
    ids=["works", "is not there", "has reported a step", "has told one before"],
)
def test_one_that_works_or_is_away_or_has_told_a_step_is_enough(task: str, entry: dict[str, Any]) -> None:
    view = idle()
    views.told(view, task, **entry)
    assert judged(view) is None


def test_an_earlier_attempt_without_a_step_changes_nothing() -> None:
    view = idle()
    views.told(view, "worker:1", history=[PAST])
    assert judged(view) is not None


def test_who_has_ended_and_an_evaluator_need_not_be_idle() -> None:
    view = idle()
    views.told(view, "worker:0", state="succeeded", idle_since=None)
    view.roster["worker:1"]["role"] = "evaluator"
    views.told(view, "worker:1", idle_since=None)
    assert judged(view) is not None


def test_where_nobody_is_left_nobody_is_missed() -> None:
    view = idle()
    views.told(view, *view.tasks, state="stopped")
    assert judged(view) is None


def test_while_a_loss_is_being_mended_everybody_waits_for_good_reason() -> None:
    view = idle()
    one = lose(view)
    assert judged(view) is None
    one["recovered"] = 1002.0
    assert judged(view) is not None


def test_a_run_is_restarted_for_that_once() -> None:
    view = idle()
    lose(view, NEVER_BEGAN)["closed"] = "x"
    lose(view)["closed"] = "x"
    assert judged(view) is None


@pytest.mark.parametrize(
    ("recovery", "is_judged"),
    [
        ({"first_step_s": None, "stall_s": None}, True),
        ({"first_step_s": None, "stall_s": 20.0}, True),
        ({"first_step_s": None, "stall_s": 0.0}, False),
        ({"first_step_s": 0.0, "stall_s": None}, False),
        ({"first_step_s": 900.0, "stall_s": None}, False),
    ],
)
def test_a_limit_of_the_users_or_none_holds(recovery: dict[str, Any], is_judged: bool) -> None:
    assert (judged(idle(recovery=recovery)) is not None) is is_judged


def test_a_lead_that_serves_nobody_or_is_unknown_here_may_wait_for_anything() -> None:
    view = idle()
    view.spec["tasks"][0]["ready"] = "started"
    assert judged(view) is None
    view = idle()
    view.spec["tasks"][0]["id"] = "worker:0"
    assert judged(view) is None


def test_everybody_who_trains_is_restarted_and_the_ps_tasks_where_something_is_saved() -> None:
    view = idle()
    view.roster["worker:1"]["role"] = "evaluator"
    assert set(whom_to_restart(view, saved=True)) == {"chief:0", "worker:0", "ps:0", "ps:1"}
    assert set(whom_to_restart(view, saved=False)) == {"chief:0", "worker:0"}


def test_who_is_not_wanted_to_run_is_not_restarted() -> None:
    view = idle()
    view.wanted(["worker:1"], want="stop")
    assert set(whom_to_restart(view, saved=False)) == {"chief:0", "worker:0"}
