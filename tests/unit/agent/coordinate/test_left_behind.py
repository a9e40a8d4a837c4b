"""Which tasks a cut has left hanging: histories of a run, replayed on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.coordinate.left_behind import SETTLE_S, LeftBehind
from dtctl.agent.coordinate.view import View
from dtctl.agent.run.hangs import AFTER_CUT_S
from tests.unit.agent.coordinate import views

CUT_ENDED = 1000.0
BEGAN = ("chief:0", "worker:0", "worker:1")


class Replay:
    """Every second `steps` are made; worker:1 makes none after the cut."""

    def __init__(self, strategy: str = "async-ps", **fields: Any) -> None:
        self.view: View = views.running(strategy, **fields)
        self.found = LeftBehind()
        self.now = CUT_ENDED - 30.0
        self.steps = {"chief:0", "worker:0"}
        for task in BEGAN:
            views.reported(self.view, task, step=500, longest_gap_s=1.0)

    def run_for(self, seconds: float, cut_ended: float | None = CUT_ENDED) -> dict[str, float]:
        """Whom is found at the end of it."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            for task in self.steps:
                step = self.view.entry(task)["step"]
                assert step is not None
                views.reported(self.view, task, step=step + 1)
            self.found.update(self.view, cut_ended, self.now)
        return self.found.hung


def after_cut(**fields: Any) -> Replay:
    replay = Replay(**fields)
    replay.run_for(30.0, None)
    return replay


def test_a_task_without_a_step_for_a_minute_after_a_cut_is_found_while_peers_step() -> None:
    replay = after_cut()
    assert replay.run_for(AFTER_CUT_S) == {}
    assert replay.run_for(2.0) == {"worker:1": AFTER_CUT_S}


def test_nothing_is_found_without_a_cut() -> None:
    assert after_cut().run_for(3600.0, None) == {}


def test_the_users_own_limit_for_stalls_applies_after_a_cut_too() -> None:
    replay = after_cut(recovery={"stall_s": 900.0})
    assert replay.run_for(3 * AFTER_CUT_S) == {}


def test_a_task_whose_steps_are_rarer_than_a_minute_has_its_own_limit() -> None:
    replay = after_cut()
    views.reported(replay.view, "worker:1", longest_gap_s=200.0)
    assert replay.run_for(399.0) == {}
    assert replay.run_for(3.0) == {"worker:1": 400.0}


def entry(task: str = "worker:1", **fields: Any) -> Callable[[Replay], object]:
    return lambda replay: views.reported(replay.view, task, **fields)


def peers_stop(replay: Replay) -> None:
    replay.steps.clear()


def is_drained(replay: Replay) -> None:
    replay.view.wanted(["worker:1"], want="hold")


def serves_only(replay: Replay) -> None:
    """As a worker of in-graph training: it has no steps of its own."""
    views.reported(replay.view, "worker:1", step=None)


def a_host_is_away(replay: Replay) -> None:
    replay.view.hosts["a"]["connected"] = False


def a_ps_is_restarted(replay: Replay) -> None:
    replay.view.open_incident("ps:0", {"attempt": 1, "ended": 999.0}, "exit", [], ["ps:0"], 1000.0)


@pytest.mark.parametrize(
    "change",
    [
        entry(state="backoff"),
        entry(state="starting"),
        entry(step=600),
        peers_stop,
        is_drained,
        serves_only,
        a_host_is_away,
        a_ps_is_restarted,
    ],
    ids=lambda change: getattr(change, "__name__", "entry"),
)
def test_no_task_is_found_that_may_be_silent_or_has_no_peer_that_steps(change: Callable[[Replay], object]) -> None:
    replay = after_cut()
    if "<lambda>" not in change.__name__:
        change(replay)
    replay.run_for(SETTLE_S + 2.0)
    change(replay)
    assert replay.run_for(3 * AFTER_CUT_S) == {}


def test_a_task_at_its_target_step_may_close_silently() -> None:
    assert after_cut(target_step=500).run_for(3 * AFTER_CUT_S) == {}


def test_another_cut_counts_from_its_own_end() -> None:
    replay = after_cut()
    replay.run_for(50.0)
    assert replay.run_for(50.0, CUT_ENDED + 50.0) == {}
    assert replay.run_for(15.0, CUT_ENDED + 50.0) == {"worker:1": AFTER_CUT_S}


def test_a_task_that_steps_once_more_or_is_restarted_is_not_found_any_more() -> None:
    for change in (entry(step=501), entry(attempt=2, step=None)):
        replay = after_cut()
        assert replay.run_for(AFTER_CUT_S + 2.0) == {"worker:1": AFTER_CUT_S}
        change(replay)
        assert replay.run_for(300.0) == {}


def lose_ps(replay: Replay) -> None:
    replay.view.open_incident("ps:0", {"attempt": 1, "ended": replay.now}, "exit", [], ["ps:0"], replay.now)


def recover_ps(replay: Replay) -> None:
    """Its next attempt listens, and training goes on."""
    for one in replay.view.open_incidents():
        one["recovered"] = replay.now


def test_a_worker_that_hangs_after_the_loss_of_a_ps_is_found_while_peers_step() -> None:
    """No network was cut: the session of the worker waits for an answer of the ps that was killed."""
    replay = after_cut()
    lose_ps(replay)
    assert replay.run_for(20.0, None) == {}
    recover_ps(replay)
    assert replay.run_for(AFTER_CUT_S - 2.0, None) == {}
    assert replay.run_for(4.0, None) == {"worker:1": AFTER_CUT_S}


def test_after_a_loss_a_worker_that_steps_again_is_not_found_later() -> None:
    replay = after_cut()
    lose_ps(replay)
    replay.run_for(20.0, None)
    recover_ps(replay)
    replay.run_for(SETTLE_S + 2.0, None)
    replay.steps.add("worker:1")
    replay.run_for(3.0, None)
    replay.steps.remove("worker:1")
    assert replay.run_for(3 * AFTER_CUT_S, None) == {}


def test_where_every_step_needs_every_task_none_is_found() -> None:
    replay = after_cut(strategy="sync-ps")
    peers_stop(replay)
    assert replay.run_for(600.0) == {}
