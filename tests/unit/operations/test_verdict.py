"""What the states of all tasks say of the run."""

from __future__ import annotations

import pytest

from dtctl.agent.records.reasons import sentence
from dtctl.model import TaskId, TaskState
from dtctl.operations.asking.tasks import Exit, TaskStatus, how_it_ended
from dtctl.operations.asking.verdict import Outcome, Verdict, judge
from dtctl.plan.values import SuccessRule

LEAD = TaskId("worker", 0)


def told(success: SuccessRule = "lead", /, **states: TaskStatus | str) -> Verdict:
    """The verdict on tasks named ps_0=..., in states or whole statuses."""
    tasks = {}
    for name, value in states.items():
        job, _, index = name.rpartition("_")
        task = TaskId(job, int(index))
        tasks[task] = value if isinstance(value, TaskStatus) else TaskStatus(task, "h", TaskState(value))
    return judge(tasks, LEAD, success)


def failed(name: str, *ends: float, code: int = 1) -> TaskStatus:
    history = tuple(Exit(n, end - 1, end, code, None, asked=False) for n, end in enumerate(ends, 1))
    return TaskStatus(TaskId.parse(name), "h", TaskState.FAILED, since=ends[-1], code=code, history=history)


def test_the_lead_decides_whatever_the_others_do() -> None:
    assert told(ps_0="running", worker_0="succeeded", worker_1="running").outcome is Outcome.SUCCEEDED


def test_the_exit_of_another_worker_is_no_success() -> None:
    assert told(ps_0="running", worker_0="running", worker_1="succeeded").outcome is Outcome.RUNNING


def test_collectives_need_every_worker() -> None:
    assert told("all-workers", worker_0="succeeded", worker_1="running").outcome is Outcome.RUNNING
    assert told("all-workers", worker_0="succeeded", worker_1="succeeded").outcome is Outcome.SUCCEEDED


def test_a_task_past_its_budget_fails_the_run() -> None:
    verdict = told(ps_0=failed("ps:0", 10.0), worker_0="running")
    assert (verdict.outcome, verdict.cause) == (Outcome.FAILED, TaskId("ps", 0))
    assert sentence(verdict.why) == "ps:0 failed: exit code 1"


def test_the_first_failure_in_time_is_the_cause_even_if_it_gave_up_last() -> None:
    crashing = failed("ps:0", 10.0, 20.0, 30.0)
    follower = failed("worker:1", 11.0, 12.0)
    assert told(ps_0=crashing, worker_0="running", worker_1=follower).cause == TaskId("ps", 0)


def test_failures_before_an_exit_that_was_asked_for_are_not_the_cause() -> None:
    past = (
        Exit(1, 0, 5.0, 1, None, asked=False),
        Exit(2, 5, 8.0, None, 15, asked=True),
        Exit(3, 8, 30.0, 1, None, asked=False),
    )
    old = TaskStatus(TaskId("worker", 1), "h", TaskState.FAILED, since=30.0, history=past)
    assert told(ps_0=failed("ps:0", 20.0), worker_0="running", worker_1=old).cause == TaskId("ps", 0)


def test_a_success_that_came_before_a_failure_stays_one() -> None:
    assert told(worker_0="succeeded", worker_1=failed("worker:1", 9.0)).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ({"ps_0": "pending", "worker_0": "starting"}, Outcome.CREATED),
        ({"ps_0": "running", "worker_0": "backoff"}, Outcome.RESTARTING),
        ({"ps_0": "running", "worker_0": "stopped"}, Outcome.STOPPED),
        ({"ps_0": "lost", "worker_0": "running"}, Outcome.RUNNING),
        ({"ps_0": "stopped", "worker_0": "running"}, Outcome.RUNNING),
    ],
)
def test_the_words_of_a_run(states: dict[str, str], outcome: Outcome) -> None:
    assert told(**states).outcome is outcome


@pytest.mark.parametrize(
    ("code", "signal", "words"),
    [(3, None, "exit code 3"), (None, 9, "killed by SIGKILL"), (None, None, "its exit is unknown")],
)
def test_an_exit_in_words(code: int | None, signal: int | None, words: str) -> None:
    status = TaskStatus(TaskId("ps", 0), "a", TaskState.FAILED, code=code, signal=signal)
    assert sentence(how_it_ended(status)) == words
