"""How far a run is, by what its tasks told last."""

from __future__ import annotations

from typing import Any

from dtctl.model import TaskId, TaskState
from dtctl.operations.snapshot import Progress, TaskStatus, progress_of
from tests.unit.tasks import task_status

LEAD = TaskId("chief", 0)


def task(name: str, state: TaskState = TaskState.RUNNING, **told: Any) -> TaskStatus:
    return task_status(name, state=state, **told)


def test_a_run_that_has_told_no_step_has_a_target_alone() -> None:
    assert progress_of([task("ps:0"), task("chief:0")], LEAD, 100) == Progress(target=100)


def test_the_furthest_step_counts_and_the_leads_rate_and_loss() -> None:
    tasks = [
        task("chief:0", step=90, step_time=5.0, rate=2.0, loss="0.5"),
        task("worker:0", step=100, step_time=6.0, rate=9.0, loss="0.7"),
    ]
    assert progress_of(tasks, LEAD, 200) == Progress(100, 6.0, 200, 2.0, "0.5")


def test_what_the_lead_does_not_tell_a_worker_does() -> None:
    tasks = [task("chief:0"), task("worker:0", step=100, step_time=6.0, rate=9.0, loss="0.7")]
    assert progress_of(tasks, LEAD, None) == Progress(100, 6.0, None, 9.0, "0.7")


def test_of_two_equally_far_the_lead_counts() -> None:
    tasks = [task("worker:0", step=90, step_time=6.0), task("chief:0", step=90, step_time=5.0)]
    for order in (tasks, tasks[::-1]):
        assert progress_of(order, LEAD, None) == Progress(90, 5.0)


def test_a_step_is_further_than_none() -> None:
    tasks = [task("chief:0", step=0, step_time=6.0), task("worker:0", step=1, step_time=5.0)]
    assert progress_of(tasks, LEAD, None) == Progress(1, 5.0)


def test_without_the_leads_the_rate_and_loss_of_the_furthest_count() -> None:
    for steps in ((0, 1, 0), (10, 30, 20)):
        tasks = [task(f"worker:{n}", step=step, rate=float(n), loss=f"0.{n}") for n, step in enumerate(steps)]
        assert progress_of(tasks, LEAD, None) == Progress(max(steps), rate=1.0, loss="0.1")


def test_a_task_that_runs_no_more_has_no_rate() -> None:
    tasks = [task("worker:0", TaskState.BACKOFF, step=100, rate=9.0, loss="nan")]
    assert progress_of(tasks, LEAD, 200) == Progress(100, None, 200, None, "nan")


def test_the_time_that_is_left_is_that_of_the_steps_that_are_left() -> None:
    assert Progress(100, 0.0, 300, 4.0).left_s == 50.0
    assert Progress(301, 0.0, 300, 4.0).left_s == 0.0
    assert Progress(100, 0.0, None, 4.0).left_s is None
    assert Progress(100, 0.0, 300, None).left_s is None
    assert Progress(None, None, 300, 4.0).left_s is None
