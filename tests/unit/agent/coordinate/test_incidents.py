"""A loss, from the moment in which it is noticed to the one in which the run trains again."""

from __future__ import annotations

import pytest

from dtctl.agent.coordinate import incidents
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.whole_run import Incident, tells_steps
from tests.unit.agent.coordinate import views

WHY = [fact("killed", signal=9)]


def lost(view: View, task: str, *others: str, wall: float = 1010.0) -> Incident:
    return incidents.opened(view, task, {"attempt": 3, "ended": 1009.0}, WHY, [task, *others], wall)


def test_an_incident_tells_what_was_lost_and_when() -> None:
    view = views.running()
    views.told(view, "worker:0", step=40)
    one = lost(view, "ps:0", "chief:0")
    assert view.data["incidents"] == [one]
    assert (one["id"], one["task"], one["host"], one["scope"]) == (1, "ps:0", "a", "task")
    assert (one["attempt"], one["ended"], one["noticed"]) == (3, 1009.0, 1010.0)
    assert (one["tasks"], one["step"], one["reason"]) == (["ps:0", "chief:0"], 40, "killed by SIGKILL")
    assert (one["begun"], one["recovered"], one["closed"], one["back_to"]) == (None, None, None, None)
    assert lost(view, "ps:1")["id"] == 2
    del view.data["incidents"][0]
    assert lost(view, "ps:1")["id"] == 3


@pytest.mark.parametrize(
    ("task", "others", "own"), [("worker:0", (), True), ("worker:0", ("worker:1",), False), ("ps:0", (), False)]
)
def test_a_restart_is_the_agents_own_where_it_concerns_nobody_else(
    task: str, others: tuple[str, ...], own: bool
) -> None:
    assert lost(views.running(), task, *others)["own"] is own


def test_an_incident_is_open_until_it_is_recovered_or_closed_and_waits_until_it_begins() -> None:
    view = views.running()
    recovered, closed, begun, waiting = (lost(view, "ps:0") for _ in range(4))
    recovered["recovered"] = 1020.0
    closed["closed"] = "it was lost again"
    incidents.begin(view, begun, 1020.0)
    assert list(incidents.still_open(view)) == [begun, waiting]
    assert list(incidents.waiting(view)) == [waiting]


def test_the_newest_open_incident_of_a_task_counts() -> None:
    view = views.running()
    first, second, third = lost(view, "ps:0"), lost(view, "ps:1", "ps:0"), lost(view, "ps:0")
    assert incidents.of_task(view, "ps:0") is third
    third["closed"] = "over"
    assert incidents.of_task(view, "ps:0") is second
    second["recovered"] = 1020.0
    assert incidents.of_task(view, "ps:0") is first
    assert incidents.of_task(view, "ps:1") is None
    assert incidents.of_task(view, "worker:0") is None


def test_its_tasks_are_back_once_it_has_begun_and_each_is_ready_or_at_its_end() -> None:
    view = views.running()
    one = lost(view, "worker:0", "worker:1")
    assert not incidents.is_back(view, one)
    incidents.begin(view, one, 1011.0)
    assert incidents.is_back(view, one)
    views.told(view, "worker:0", ready=False)
    assert not incidents.is_back(view, one)
    views.told(view, "worker:0", state="succeeded")
    assert incidents.is_back(view, one)


def test_a_run_that_tells_no_steps_trains_again_when_its_tasks_are_back() -> None:
    view = views.running()
    one = lost(view, "worker:0")
    assert not incidents.trains_again(view, one)
    incidents.begin(view, one, 1011.0)
    assert (one["begun"], one["told"]) == (1011.0, {"chief:0": None, "worker:0": None, "worker:1": None})
    assert not tells_steps(one)
    assert incidents.trains_again(view, one)


def test_a_run_that_tells_steps_trains_again_with_the_next_step_of_anybody() -> None:
    view = views.running()
    views.told(view, "worker:1", step=40)
    one = lost(view, "worker:0")
    assert tells_steps(one)
    incidents.begin(view, one, 1011.0)
    assert one["told"]["worker:1"] == 40
    assert not incidents.trains_again(view, one)
    views.told(view, "ps:0", step=3)
    assert not incidents.trains_again(view, one), "a ps does not train"
    views.told(view, "chief:0", step=1)
    assert incidents.trains_again(view, one)
    views.told(view, "worker:0", ready=False)
    assert not incidents.trains_again(view, one)


def test_a_step_that_was_told_only_before_it_began_says_that_the_run_tells_them() -> None:
    view = views.running()
    one = lost(view, "worker:0")
    views.told(view, "worker:1", step=40)
    incidents.begin(view, one, 1011.0)
    assert (one["step"], tells_steps(one)) == (None, True)
    assert not incidents.trains_again(view, one)


def test_somebody_is_being_mended_until_every_open_incident_is_back() -> None:
    view = views.running("sync-ps")
    assert incidents.is_recovering(view) is False
    first, second = lost(view, "worker:0"), lost(view, "worker:1")
    assert incidents.is_recovering(view) is True
    incidents.begin(view, first, 1011.0)
    assert incidents.is_recovering(view) is True
    incidents.begin(view, second, 1011.0)
    assert incidents.is_recovering(view) is False
