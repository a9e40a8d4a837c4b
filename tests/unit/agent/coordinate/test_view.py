"""Questions to what the coordinator knows."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate.view import UNKNOWN, View, first_view, is_of
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Intent, State
from tests.unit.agent.coordinate import views
from tests.unit.agent.coordinate.world import spec_of


def said(view: View, host: str, *, run: str = "demo-1", of: str | None = None, tasks: list[str] | None = None) -> Any:
    """What a host tells of these tasks, its own ones unless said otherwise."""
    named = view.tasks_on(host) if tasks is None else tasks
    state = made(State, run=run, host=of or host, tasks={task: made(Entry) for task in named})
    return {"type": "state", "state": state, "intents": {task: made(Intent) for task in named}}


def test_a_run_that_has_just_begun_holds_every_task() -> None:
    spec = spec_of("async-ps", views.PLACES)
    data = first_view(spec, 1000.0)
    assert (data["run"], data["phase"], data["serial"], data["request_serial"]) == ("demo-1", "starting", 0, 0)
    assert (data["time"], data["elapsed_s"], data["restarts"], data["missing"]) == (1000.0, 0.0, 0, None)
    assert (data["condition"]["type"], data["condition"]["since"]) == ("Created", 1000.0)
    assert {task: intent["want"] for task, intent in data["intents"].items()} == dict.fromkeys(views.PLACES, "hold")
    assert set(data["hosts"]) == {"a", "b", "c", "d"}


def test_a_view_is_of_a_run_with_its_name_its_hosts_and_its_tasks() -> None:
    spec = spec_of("async-ps", views.PLACES)

    def damaged(**fields: Any) -> bool:
        return is_of({**first_view(spec, 0.0), **fields}, spec)  # type: ignore[typeddict-item]

    whole = first_view(spec, 0.0)
    assert damaged()
    assert not damaged(run="demo-2")
    assert not damaged(hosts={"a": whole["hosts"]["a"]})
    assert not damaged(intents={"ps:0": whole["intents"]["ps:0"]})


def test_a_host_may_speak_of_its_own_tasks_all_of_them_and_of_no_others() -> None:
    view = views.running()
    assert view.problem("d", said(view, "d")) is None
    assert "run demo-2" in str(view.problem("d", said(view, "d", run="demo-2")))
    assert "state of a" in str(view.problem("d", said(view, "d", of="a")))
    for tasks, odd in ((["worker:0"], "worker:1"), (["worker:0", "worker:1", "ps:0"], "ps:0")):
        assert odd in str(view.problem("d", said(view, "d", tasks=tasks)))
    other: Any = {**said(view, "d"), "intents": said(view, "d", tasks=["worker:0"])["intents"]}
    assert "intents" in str(view.problem("d", other))
    every = str(view.problem("a", said(view, "a", tasks=["chief:0", "ps:0", "ps:1", "worker:0", "worker:1"])))
    assert all(task in every for task in ("chief:0", "ps:1", "worker:0"))
    assert "worker:1" not in every, "three are enough"


def test_a_host_may_tell_the_past_of_its_own_tasks() -> None:
    view = views.running()

    def problem(*tasks: str | None) -> str | None:
        return view.problem("d", {"type": "events", "events": [task and {"task": task} for task in tasks]})  # type: ignore[arg-type]

    assert problem("worker:0", None, "worker:1") is None
    assert "ps:0" in str(problem("worker:0", "ps:0"))


def test_tasks_are_found_by_host_and_by_role() -> None:
    view = views.unheard()
    assert view.tasks_on("d") == ["worker:0", "worker:1"]
    assert (view.role("chief:0"), view.lead, view.own_host) == ("lead", "chief:0", "c")
    assert view.with_role("lead", "ps") == ["ps:0", "ps:1", "chief:0"]


@pytest.mark.parametrize(
    ("strategy", "alone"),
    [("async-ps", {"worker:0", "worker:1"}), ("sync-ps", {"worker:0", "worker:1"}), ("collective", set())],
)
def test_who_comes_back_alone(strategy: str, alone: set[str]) -> None:
    view = views.unheard(strategy)
    assert {task for task in view.tasks if view.own(task)} == alone


def test_of_a_host_that_was_never_heard_nothing_is_known() -> None:
    view = views.unheard()
    assert view.entry("worker:0") is UNKNOWN
    assert (view.reached("worker:0"), view.current("worker:0"), view.final("worker:0")) == (False, False, False)
    view.hosts["d"]["state"] = made(State, run="demo-1", host="d", tasks={"worker:0": made(Entry, state="failed")})
    assert (view.state("worker:0"), view.final("worker:0")) == ("failed", True)
    assert view.entry("worker:1") is UNKNOWN
    assert set(view.facts().entries) == {"worker:0"}


def test_a_task_is_ready_that_runs_listens_and_can_be_reached_in_the_generation_that_is_wanted() -> None:
    view = views.running()
    assert view.ready("worker:0")
    for entry in ({"ready": False}, {"state": "stalled"}):
        view = views.running()
        views.told(view, "worker:0", **entry)
        assert not view.ready("worker:0")
    view = views.running()
    view.hosts["d"]["connected"] = False
    assert not view.ready("worker:0")
    view = views.running()
    view.wanted(["worker:0"], generation=2)
    assert (view.current("worker:0"), view.ready("worker:0"), view.current("worker:1")) == (False, False, True)
    views.told(view, "worker:0", generation=3)
    assert view.current("worker:0")


@pytest.mark.parametrize(
    ("intent", "waits"),
    [({"want": "hold"}, True), ({}, False), ({"early": True}, True), ({"early": True, "want": "stop"}, False)],
)
def test_who_is_held_or_early_waits(intent: dict[str, Any], waits: bool) -> None:
    view = views.running()
    view.wanted(["worker:0"], **intent)
    assert view.waits("worker:0") is waits


def test_what_is_wanted_changes_with_its_version_for_these_tasks_alone() -> None:
    view = views.unheard()
    view.wanted(["ps:0", "ps:1"], want="run")
    assert [(intent["want"], intent["version"]) for intent in view.intents.values()] == [("run", 2)] * 2 + [
        ("hold", 1)
    ] * 3


def test_the_step_is_the_newest_of_those_who_train() -> None:
    view = views.running()
    assert view.step() is None
    views.told(view, "worker:0", step=7)
    views.told(view, "worker:1", step=9)
    views.told(view, "ps:0", step=100)
    assert view.step() == 9
    views.told(view, "chief:0", step=10)
    assert view.step() == 10
