"""Who may start when, and who is waited for and why: one moment at a time."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.coordinate import lifecycle
from dtctl.agent.coordinate.lifecycle import END_LIMIT_S, Shutdown
from dtctl.agent.coordinate.view import UNKNOWN, View
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, because, fact, headline, read, said
from dtctl.agent.records.run_state import Entry, How, State
from tests.unit.agent.coordinate import views

SERVERS, TRAINERS = ["ps:0", "ps:1"], ["chief:0", "worker:0", "worker:1"]


def held(*tasks: str, waits: bool = True) -> View:
    """The tasks are held and have not started; all others run. `waits`: as by depends_on."""
    view = views.running(held=waits)
    view.wanted(tasks, want="hold")
    views.reported(view, *tasks, state="pending", ready=False)
    return view


def test_all_may_run_at_once_and_are_early_before_those_that_they_need_are_ready() -> None:
    assert lifecycle.may_run(held(*SERVERS, *TRAINERS, waits=False), ()) == {
        **dict.fromkeys(SERVERS, False),
        **dict.fromkeys(TRAINERS, True),
    }
    assert lifecycle.may_run(held("worker:1", waits=False), ()) == {"worker:1": False}
    assert lifecycle.may_run(views.running(stages=[]), ()) == {}


def test_a_task_is_early_until_those_that_it_needs_are_ready() -> None:
    view = views.running()
    view.wanted(TRAINERS, early=True)
    views.reported(view, "chief:0", ready=False)
    assert lifecycle.may_run(view, TRAINERS) == {"chief:0": False}
    views.reported(view, "chief:0", ready=True)
    assert lifecycle.may_run(view, TRAINERS) == dict.fromkeys(TRAINERS, False)
    view.wanted(TRAINERS, want="stop")
    assert lifecycle.may_run(view, ()) == {}


def test_training_tasks_have_no_start_dependency() -> None:
    """A program that opens no port is no reason to end a run that trains."""
    view = views.running()
    view.wanted(TRAINERS, early=True)
    views.reported(view, *SERVERS, ready=False)
    views.reported(view, *TRAINERS, step=3)
    assert lifecycle.may_run(view, ()) == dict.fromkeys(TRAINERS, False)
    assert lifecycle.awaited(view) == []
    views.reported(view, *TRAINERS, state="pending")
    assert lifecycle.awaited(view) == SERVERS, "a step of an attempt that has ended means nothing"


def test_what_waits_for_others_as_the_file_says_may_run_when_they_are_ready() -> None:
    assert lifecycle.may_run(held(*SERVERS, *TRAINERS), ()) == dict.fromkeys(SERVERS, False)
    assert lifecycle.may_run(held(*TRAINERS), ()) == {"chief:0": False}
    assert lifecycle.may_run(held("worker:0", "worker:1"), ()) == {"worker:0": False, "worker:1": False}
    assert lifecycle.may_run(held(), ()) == {}


def test_blocked_or_unreachable_tasks_may_not_run() -> None:
    view = held(*SERVERS)
    assert lifecycle.may_run(view, {"ps:0"}) == {"ps:1": False}
    view.hosts["b"]["connected"] = False
    assert lifecycle.may_run(view, ()) == {"ps:0": False}


@pytest.mark.parametrize(
    ("entry", "intent", "released"),
    [
        ({}, {}, True),
        ({"ready": False}, {}, False),
        ({"ready": False}, {"want": "stop"}, True),
        ({"state": "succeeded"}, {}, True),
        ({"state": "succeeded"}, {"generation": 2}, False),
        ({"state": "failed"}, {}, False),
    ],
)
def test_stopped_or_ended_server_holds_up_no_task(
    entry: dict[str, Any], intent: dict[str, Any], released: bool
) -> None:
    view = held("chief:0")
    views.reported(view, "ps:1", **entry)
    view.wanted(["ps:1"], **intent)
    assert (lifecycle.may_run(view, ()) == {"chief:0": False}) is released


def test_hosts_are_unreached_until_they_have_spoken_once() -> None:
    view = views.unheard()
    assert lifecycle.unreached(view) == ["a", "b", "c", "d"]
    view = views.running()
    view.hosts["a"]["connected"] = False
    view.hosts["d"]["heard"] = None
    assert lifecycle.unreached(view) == ["d"]


def test_of_those_that_wait_for_each_other_the_last_is_awaited() -> None:
    view = views.running()
    view.wanted(TRAINERS, early=True)
    views.reported(view, "ps:1", "chief:0", ready=False)
    assert lifecycle.awaited(view) == ["ps:1"], "chief:0 listens when it likes, as it waits for ps:1"


def test_restarted_tasks_that_are_not_ready_are_awaited() -> None:
    view = views.running()
    views.reported(view, "ps:0", "worker:0", "chief:0", state="starting", ready=False)
    views.reported(view, "worker:1", state="failed", ready=False)
    loss: Any = {"attempt": 1, "ended": 1.0}
    begun, waiting = (
        view.open_incident(tasks[0], loss, "exit", [fact("killed", signal=9)], tasks, 1.0)
        for tasks in (["ps:0", "ps:1", "worker:0", "worker:1"], ["chief:0"])
    )
    assert lifecycle.awaited(view) == []
    view.begin_incident(begun, 2.0)
    assert lifecycle.awaited(view) == ["ps:0", "worker:0"], "one is ready, one has failed, and one is not to start yet"
    assert waiting["begun"] is None


SILENT: list[tuple[list[str], str]] = [
    (["a"], "a"),
    (list("abcde"), "a, b, c, d, e"),
    (list("abcdef"), "a, b, c, d, e and 1 more"),
]


@pytest.mark.parametrize(("silent", "text"), SILENT)
def test_hosts_that_never_connected_are_reported_first(
    monkeypatch: pytest.MonkeyPatch, silent: list[str], text: str
) -> None:
    monkeypatch.setattr(lifecycle, "unreached", lambda _: silent)
    view = held(*TRAINERS)
    views.reported(view, "ps:0", ready=False)
    assert lifecycle.waits_for(view) == [fact("hosts_silent", text=text, count=len(silent))]
    assert lifecycle.unconnected(view)[0] == fact("hosts_unconnected", text=text, what="10.0.0.1:2221")


LISTENS = fact("waits_to_listen", task="ps:0")


@pytest.mark.parametrize(
    ("entry", "connected", "why"),
    [
        ({}, True, [LISTENS]),
        ({}, False, [fact("waits_for_host", task="ps:0", host="a")]),
        ({"generation": 0}, True, [fact("waits_in_state", task="ps:0", text="running")]),
        ({"state": "starting"}, True, [fact("waits_in_state", task="ps:0", text="starting")]),
        (
            {"state": "backoff", **because([fact("killed", signal=9)])},
            True,
            [fact("starts_again", task="ps:0"), fact("killed", signal=9)],
        ),
    ],
)
def test_reason_why_an_awaited_task_is_not_ready_is_reported(
    entry: dict[str, Any], connected: bool, why: list[Fact]
) -> None:
    view = held(*TRAINERS)
    view.wanted(["ps:0"], generation=1)
    views.reported(view, "ps:0", **{"generation": 1, "ready": False, **entry})
    view.hosts["a"]["connected"] = connected
    assert lifecycle.waits_for(view) == why


def test_a_task_without_an_address_is_loading() -> None:
    view = held(*TRAINERS)
    views.reported(view, "ps:0", ready=False)
    view.roster["ps:0"]["address"] = None
    assert lifecycle.waits_for(view) == [fact("waits_to_listen", task="ps:0")]


@pytest.mark.parametrize(
    ("unready", "more"),
    [(SERVERS, []), ([*SERVERS, "chief:0"], []), ([*SERVERS, "chief:0", "worker:0"], ["and_more"])],
)
def test_three_tasks_are_named_and_further_ones_indicated(
    monkeypatch: pytest.MonkeyPatch, unready: list[str], more: list[str]
) -> None:
    monkeypatch.setattr(lifecycle, "awaited", lambda _: unready)
    kinds = [read(one)["kind"] for one in lifecycle.waits_for(views.running())]
    assert kinds == ["waits_to_listen", *["and", "waits_to_listen"] * (min(3, len(unready)) - 1), *more]
    monkeypatch.setattr(lifecycle, "awaited", lambda _: [])
    assert lifecycle.waits_for(views.running()) == []


PS_TASKS = {"ps:0", "ps:1"}
OTHERS = {"chief:0", "worker:0", "worker:1"}
GRACE_S, SETTLE_S = 10.0, 30.0


def decided(kind: str, strategy: str = "async-ps") -> tuple[View, Shutdown]:
    view = views.running(strategy)
    view.data["condition"]["type"] = kind  # type: ignore[typeddict-item]
    return view, Shutdown(view, 100.0)


def wanted(view: View, want: str) -> set[str]:
    return {task for task, intent in view.intents.items() if intent["want"] == want}


def asked(**fields: Any) -> How:
    return made(How, **{"why": said("enough"), "by": "me", **fields})


def end(view: View, *tasks: str, state: str = "stopped") -> None:
    views.reported(view, *tasks, state=state)


def test_after_a_failure_all_tasks_stop_at_once_and_servers_last() -> None:
    view, shutdown = decided("Failed")
    assert wanted(view, "run") == PS_TASKS | OTHERS
    shutdown.step(100.0)
    assert (wanted(view, "stop"), wanted(view, "run")) == (OTHERS, PS_TASKS)
    assert {view.intents[task]["by"] for task in OTHERS} == {"coordinator"}
    end(view, "chief:0", "worker:0")
    shutdown.step(101.0)
    assert wanted(view, "stop") == OTHERS
    end(view, "worker:1", state="failed")
    shutdown.step(102.0)
    assert wanted(view, "stop") == OTHERS | PS_TASKS


@pytest.mark.parametrize("grace_s", [None, 3.0, 0.0])
def test_servers_wait_for_the_grace_that_was_asked_for_and_no_longer(grace_s: float | None) -> None:
    view, shutdown = decided("Stopped")
    shutdown.stop_now(asked(grace_s=grace_s), 100.0)
    limit_s = END_LIMIT_S + (GRACE_S if grace_s is None else grace_s)
    shutdown.step(100.0 + limit_s - 0.1)
    assert wanted(view, "stop") == OTHERS
    shutdown.step(100.0 + limit_s)
    assert wanted(view, "stop") == OTHERS | PS_TASKS
    assert {intent["grace_s"] for intent in view.intents.values()} == {grace_s}
    assert {intent["by"] for intent in view.intents.values()} == {"me"}


def test_a_second_stop_may_give_less_time_to_those_that_have_not_ended() -> None:
    view, shutdown = decided("Stopped")
    shutdown.stop_now(asked(grace_s=30.0), 100.0)
    end(view, "worker:1")
    shutdown.stop_now(asked(grace_s=1.0), 101.0)
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
    assert wanted(view, "stop") == OTHERS | PS_TASKS


def test_after_a_success_the_others_may_end_by_themselves_for_a_while() -> None:
    view, shutdown = decided("Succeeded")
    assert wanted(view, "finish") == PS_TASKS | OTHERS
    assert {intent["by"] for intent in view.intents.values()} == {"coordinator"}
    shutdown.step(100.0 + SETTLE_S - 0.1)
    assert wanted(view, "finish") == PS_TASKS | OTHERS
    end(view, *OTHERS, state="succeeded")
    shutdown.step(100.0 + SETTLE_S - 0.1)
    assert wanted(view, "stop") == PS_TASKS | OTHERS


def test_tasks_stopped_before_are_not_stopped_again() -> None:
    view = views.running()
    view.wanted(["worker:1"], want="stop", by="ada")
    view.data["condition"]["type"] = "Succeeded"
    shutdown = Shutdown(view, 100.0)
    shutdown.step(200.0)
    shutdown.step(300.0)
    assert view.intents["worker:1"]["by"] == "ada"
    assert {intent["version"] for task, intent in view.intents.items() if task != "worker:1"} == {4}


def test_a_task_of_which_a_full_disk_hides_the_end_is_not_waited_for() -> None:
    view, shutdown = decided("Failed")
    end(view, "chief:0", "worker:0")
    shutdown.step(100.0)
    assert wanted(view, "stop") == OTHERS
    views.reported(view, "worker:1", unwritten=True)
    shutdown.step(101.0)
    assert wanted(view, "stop") == OTHERS | PS_TASKS


def test_a_host_that_is_away_is_not_waited_for() -> None:
    view, shutdown = decided("Failed")
    view.hosts["d"]["connected"] = False
    end(view, "chief:0")
    shutdown.step(100.0)
    assert wanted(view, "stop") == OTHERS | PS_TASKS


def test_a_host_is_done_when_its_tasks_have_ended_and_are_wanted_to() -> None:
    view, shutdown = decided("Failed")
    assert not shutdown.host_is_done("d")
    end(view, "worker:0", "worker:1")
    assert not shutdown.host_is_done("d")
    shutdown.step(100.0)
    assert shutdown.host_is_done("d")
    end(view, "worker:1", state="running")
    assert not shutdown.host_is_done("d")


def test_success_is_recorded_as_such_and_failure_with_its_cause() -> None:
    view, _ = decided("Succeeded")
    assert {headline(intent["why"]) for intent in view.intents.values()} == {"run_succeeded"}
    view = views.running()
    failed: Any = {"type": "Failed", **because([fact("task_failed", task="worker:0")])}
    view.data["condition"].update(failed)
    Shutdown(view, 100.0).step(100.0)
    assert [read(one)["kind"] for one in view.intents["worker:0"]["why"]] == ["run_failed", "task_failed"]


def test_host_that_never_connected_has_unknown_state() -> None:
    view = views.unheard()
    assert view.entry("worker:0") is UNKNOWN
    assert (view.reached("worker:0"), view.current("worker:0"), view.final("worker:0")) == (False, False, False)
    view.hosts["d"]["state"] = made(State, run="demo-1", host="d", tasks={"worker:0": made(Entry, state="failed")})
    assert (view.state("worker:0"), view.final("worker:0")) == ("failed", True)
    assert view.entry("worker:1") is UNKNOWN
    assert set(view.facts().entries) == {"worker:0"}


def test_task_is_ready_when_it_runs_listens_and_is_reachable_in_its_generation() -> None:
    view = views.running()
    assert view.ready("worker:0")
    for entry in ({"ready": False}, {"state": "stalled"}):
        view = views.running()
        views.reported(view, "worker:0", **entry)
        assert not view.ready("worker:0")
    view = views.running()
    view.hosts["d"]["connected"] = False
    assert not view.ready("worker:0")
    view = views.running()
    view.wanted(["worker:0"], generation=2)
    assert (view.current("worker:0"), view.ready("worker:0"), view.current("worker:1")) == (False, False, True)
    views.reported(view, "worker:0", generation=3)
    assert view.current("worker:0")


def test_the_step_is_the_newest_of_those_who_train() -> None:
    view = views.running()
    assert view.step() is None
    views.reported(view, "worker:0", step=7)
    views.reported(view, "worker:1", step=9)
    views.reported(view, "ps:0", step=100)
    assert view.step() == 9
    views.reported(view, "chief:0", step=10)
    assert view.step() == 10
