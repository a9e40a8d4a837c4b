"""When the start of a run is over, as the coordinator reports it, and when it has failed."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.whole_run import RunView
from dtctl.config.cluster import Recovery
from dtctl.model import TaskId
from dtctl.operations.snapshot import Coordination
from dtctl.operations.up.result import awaited, failed_exits, failed_start, has_begun, not_listening, present
from dtctl.render.starting import show_late
from tests.unit.coordinated import entry, record, told

PS = TaskId("ps", 0)
WORKER = TaskId("worker", 1)


def seen(phase: str = "starting", condition: str = "Running", cause: str | None = None, **tasks: Any) -> Coordination:
    """`ps0`, `worker1`: what these tasks are, of four that else run and are ready."""
    named = {f"{name[:-1]}:{name[-1]}": one for name, one in tasks.items()}
    view = told(condition, tasks=named, phase=phase, cause=cause)
    return Coordination.of(checked(RunView, view), record().roster)


def ended(attempt: int, code: int | None = 125, **fields: Any) -> dict[str, Any]:
    usual = {
        "attempt": attempt,
        "started": 1.0,
        "ended": 2.0,
        "asked": False,
        "code": code,
        "signal": None,
        "cause": "",
    }
    return {**usual, "step": None, "short_of_memory": False, "hung": False, "early": False, **fields}


def lost(*ends: dict[str, Any], state: str = "backoff") -> dict[str, Any]:
    return entry(state, ready=False, attempt=len(ends), history=list(ends))


@pytest.mark.parametrize(
    ("phase", "worker", "begun"),
    [
        ("starting", entry(), False),
        ("running", entry(), True),
        ("running", entry("pending"), False),
        ("running", entry("starting"), False),
        ("running", lost(ended(1)), True),
        ("running", lost(ended(1, early=True)), False),
        ("finishing", entry("pending"), True),
        ("ended", entry("pending"), True),
    ],
)
def test_a_start_is_over_when_every_task_has_begun_or_the_run_is_decided(
    phase: str, worker: dict[str, Any], begun: bool
) -> None:
    assert has_begun(seen(phase, worker1=worker)) is begun


def test_tasks_of_hosts_that_the_run_goes_on_without_are_not_waited_for() -> None:
    view = told(phase="running", hosts={"d": {"connected": False, "heard": None, "state": None, "absent": True}})
    assert has_begun(Coordination.of(checked(RunView, view), record().roster))


def test_those_are_named_that_run_and_do_not_listen() -> None:
    now = seen(ps0=entry(ready=False), worker1=entry("starting", ready=False))
    assert not_listening(now) == (PS,)
    assert awaited(present(now)) == "ps:0 running, does not listen yet; worker:1 starting"
    assert awaited(present(now), most=1) == "ps:0 running, does not listen yet and 1 more"


def test_after_half_a_minute_those_that_do_not_listen_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_late(seen(ps0=entry(ready=False)))
    show_late(seen(ps0=entry(ready=False), worker1=entry(ready=False)))
    shown = capsys.readouterr().err
    assert "ps:0 runs but does not listen on its port after 30 s" in shown
    assert "ps:0,worker:1 run but do not listen on their ports after 30 s" in shown


def test_the_first_failed_exit_of_each_task_is_reported_once() -> None:
    now = seen(ps0=lost(ended(1), state="running"), worker1=lost(ended(1, early=True)))
    assert [one.id for one in failed_exits(now, ())] == [PS], "worker:1 only missed its ps"
    assert failed_exits(now, {PS}) == []


@pytest.mark.parametrize(
    ("ends", "gives_up"),
    [
        ([ended(1)], False),
        ([ended(1), ended(2)], True),
        ([ended(1), ended(2, code=1)], False),
        ([ended(1), ended(2, early=True)], False),
        ([ended(1), ended(2, asked=True)], False),
        ([ended(1, cause="no room at 0x7f"), ended(2, cause="no room at 0x8a")], True),
        ([ended(1, step=3), ended(2)], False),
        ([ended(1, code=42), ended(2, code=42)], False),
        ([ended(1, code=None, signal=11), ended(2, code=None, signal=11)], False),
        ([ended(1, code=None, signal=6), ended(2, code=None, signal=6)], True),
        ([ended(number, cause="Address already in use") for number in (1, 2)], False),
        ([ended(number, cause="Address already in use") for number in (1, 2, 3)], True),
    ],
)
def test_a_start_that_ends_the_same_way_again_is_given_up(ends: list[dict[str, Any]], gives_up: bool) -> None:
    now = seen(ps0=lost(*ends))
    found = failed_start(now, Recovery())
    assert (found is not None) is gives_up
    assert found is None or (found.gave_up and found.cause is not None and found.cause.id == PS)
    assert failed_start(now, Recovery(repeat=0)) is None, "the file wants it tried again and again"
    assert failed_start(seen("running", ps0=lost(*ends)), Recovery()) is None, "others train already"


def test_a_start_is_given_up_though_it_runs_if_no_task_has_stayed() -> None:
    ends = [ended(1), ended(2)]
    again: dict[str, Any] = {name: lost(*ends) for name in ("ps0", "ps1", "worker0", "worker1")}
    found = failed_start(seen("running", **again), Recovery())
    assert found is not None
    assert found.gave_up
    again["worker0"] = lost(*ends, state="running")
    assert failed_start(seen("running", **again), Recovery()) is not None, "it runs for a third time"
    again["worker0"] = entry()
    assert failed_start(seen("running", **again), Recovery()) is None


def test_a_task_that_has_failed_for_good_fails_the_start_and_the_runs_cause_comes_first() -> None:
    failed = entry("failed", ready=False, history=[ended(1, code=2)])
    found = failed_start(seen("running", worker1=failed), Recovery())
    assert found is not None
    assert (found.cause and found.cause.id, found.gave_up) == (WORKER, False)
    both = failed_start(seen("finishing", "Failed", "worker:1", ps0=failed, worker1=failed), Recovery())
    assert both is not None
    assert both.cause is not None
    assert both.cause.id == WORKER
    without = failed_start(seen("finishing", "Failed"), Recovery())
    assert without is not None
    assert without.cause is None
    assert failed_start(seen(), Recovery()) is None
