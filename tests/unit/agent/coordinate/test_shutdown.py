"""How a decided run is ended: who is stopped when, with whose grace, and when a host has nothing left to do."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate.lifecycle import END_LIMIT_S, Shutdown
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import because, fact, headline
from dtctl.agent.records.run_state import How
from tests.unit.agent.coordinate import views

SERVERS = {"ps:0", "ps:1"}
OTHERS = {"chief:0", "worker:0", "worker:1"}
GRACE_S, SETTLE_S = 10.0, 30.0


def decided(kind: str, strategy: str = "async-ps") -> tuple[View, Shutdown]:
    view = views.running(strategy)
    view.data["condition"]["type"] = kind  # type: ignore[typeddict-item]
    return view, Shutdown(view, 100.0)


def wanted(view: View, want: str) -> set[str]:
    return {task for task, intent in view.intents.items() if intent["want"] == want}


def asked(**fields: Any) -> How:
    return made(How, **{"reason": "enough", "by": "me", **fields})


def end(view: View, *tasks: str, state: str = "stopped") -> None:
    views.told(view, *tasks, state=state)


def test_after_a_failure_all_but_the_servers_are_stopped_at_once() -> None:
    view, shutdown = decided("Failed")
    assert wanted(view, "run") == SERVERS | OTHERS
    shutdown.step(100.0)
    assert (wanted(view, "stop"), wanted(view, "run")) == (OTHERS, SERVERS)
    assert {view.intents[task]["by"] for task in OTHERS} == {"coordinator"}


def test_servers_follow_when_nobody_is_left_whom_they_serve() -> None:
    view, shutdown = decided("Failed")
    shutdown.step(100.0)
    end(view, "chief:0", "worker:0")
    shutdown.step(101.0)
    assert wanted(view, "stop") == OTHERS
    end(view, "worker:1", state="failed")
    shutdown.step(102.0)
    assert wanted(view, "stop") == OTHERS | SERVERS


@pytest.mark.parametrize("grace_s", [None, 3.0, 0.0])
def test_servers_wait_for_the_grace_that_was_asked_for_and_no_longer(grace_s: float | None) -> None:
    view, shutdown = decided("Stopped")
    shutdown.hurry(asked(grace_s=grace_s), 100.0)
    limit_s = END_LIMIT_S + (GRACE_S if grace_s is None else grace_s)
    shutdown.step(100.0 + limit_s - 0.1)
    assert wanted(view, "stop") == OTHERS
    shutdown.step(100.0 + limit_s)
    assert wanted(view, "stop") == OTHERS | SERVERS
    assert {intent["grace_s"] for intent in view.intents.values()} == {grace_s}
    assert {intent["by"] for intent in view.intents.values()} == {"me"}


def test_a_second_stop_may_give_less_time_to_those_that_have_not_ended() -> None:
    view, shutdown = decided("Stopped")
    shutdown.hurry(asked(grace_s=30.0), 100.0)
    end(view, "worker:1")
    shutdown.hurry(asked(grace_s=1.0), 101.0)
    assert {task: view.intents[task]["grace_s"] for task in OTHERS} == {
        "chief:0": 1.0,
        "worker:0": 1.0,
        "worker:1": 30.0,
    }


def test_the_limit_counts_from_the_stop_and_not_from_the_outcome() -> None:
    view, shutdown = decided("Succeeded")
    shutdown.step(100.0 + SETTLE_S)
    assert wanted(view, "stop") == OTHERS
    shutdown.step(100.0 + SETTLE_S + GRACE_S + END_LIMIT_S - 0.1)
    assert wanted(view, "stop") == OTHERS
    shutdown.step(100.0 + SETTLE_S + GRACE_S + END_LIMIT_S)
    assert wanted(view, "stop") == OTHERS | SERVERS


def test_after_a_success_the_others_may_end_by_themselves_for_a_while() -> None:
    view, shutdown = decided("Succeeded")
    assert wanted(view, "finish") == SERVERS | OTHERS
    assert {intent["by"] for intent in view.intents.values()} == {"coordinator"}
    shutdown.step(100.0 + SETTLE_S - 0.1)
    assert wanted(view, "finish") == SERVERS | OTHERS
    end(view, *OTHERS, state="succeeded")
    shutdown.step(100.0 + SETTLE_S - 0.1)
    assert wanted(view, "stop") == SERVERS | OTHERS


def test_what_was_stopped_before_is_not_told_again() -> None:
    view = views.running()
    view.wanted(["worker:1"], want="stop", by="ada")
    view.data["condition"]["type"] = "Succeeded"
    shutdown = Shutdown(view, 100.0)
    shutdown.step(200.0)
    shutdown.step(300.0)
    assert view.intents["worker:1"]["by"] == "ada"
    assert {intent["version"] for task, intent in view.intents.items() if task != "worker:1"} == {4}


def test_a_host_that_is_away_is_not_waited_for() -> None:
    view, shutdown = decided("Failed")
    view.hosts["d"]["connected"] = False
    end(view, "chief:0")
    shutdown.step(100.0)
    assert wanted(view, "stop") == OTHERS | SERVERS


def test_a_host_is_done_when_its_tasks_have_ended_and_are_wanted_to() -> None:
    view, shutdown = decided("Failed")
    assert not shutdown.host_is_done("d")
    end(view, "worker:0", "worker:1")
    assert not shutdown.host_is_done("d")
    shutdown.step(100.0)
    assert shutdown.host_is_done("d")
    end(view, "worker:1", state="running")
    assert not shutdown.host_is_done("d")


def test_a_success_is_told_with_its_name_and_a_failure_with_its_cause() -> None:
    view, _ = decided("Succeeded")
    assert {headline(intent["why"]) for intent in view.intents.values()} == {"run_succeeded"}
    view = views.running()
    failed: Any = {"type": "Failed", **because([fact("task_failed", task="worker:0")])}
    view.data["condition"].update(failed)
    Shutdown(view, 100.0).step(100.0)
    assert [one["kind"] for one in view.intents["worker:0"]["why"]] == ["run_failed", "task_failed"]
