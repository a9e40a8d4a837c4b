"""What has become of a run, and what the states of all tasks say of it where no coordinator can be asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dtctl.agent.records.reasons import Fact, fact
from dtctl.model import LEAD_JOBS, TaskId, TaskState
from dtctl.operations.asking.tasks import TaskStatus, how_it_ended
from dtctl.plan.values import SuccessRule


class Outcome(str, Enum):
    """TFJob's words for a run (kubeflow training-operator, pkg/apis JobConditionType), and Stopped."""

    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def decided(self) -> bool:
        return self in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.STOPPED)


@dataclass(frozen=True)
class Verdict:
    """What has become of a run, and why."""

    outcome: Outcome
    why: tuple[Fact, ...]
    cause: TaskId | None = None
    """The task whose failure came first; of a failed run only."""


def judge(tasks: Mapping[TaskId, TaskStatus], lead: TaskId, success: SuccessRule) -> Verdict:
    """Success is decided by the lead or all workers, never by another's exit 0, nor by an exit that dtctl asked for."""
    deciders = [tasks[task] for task in deciding(tasks, lead, success)]
    if all(task.state is TaskState.SUCCEEDED for task in deciders):
        done = fact("lead_finished", task=str(lead)) if success == "lead" else fact("workers_finished")
        return Verdict(Outcome.SUCCEEDED, (done,))
    failed = [task for task in tasks.values() if task.state is TaskState.FAILED]
    if failed:
        first = min(failed, key=failing_since)
        return Verdict(Outcome.FAILED, (fact("task_failed", task=str(first.id)), *how_it_ended(first)), cause=first.id)
    if any(task.state is TaskState.STOPPED for task in deciders):
        stopped = next(task for task in deciders if task.state is TaskState.STOPPED)
        return Verdict(Outcome.STOPPED, stopped.why or (fact("task_stopped", task=str(stopped.id)),))
    if any(task.state is TaskState.BACKOFF for task in tasks.values()):
        waiting = next(task for task in tasks.values() if task.state is TaskState.BACKOFF)
        return Verdict(Outcome.RESTARTING, (fact("starts_again", task=str(waiting.id)), *how_it_ended(waiting)))
    running = sum(task.state is TaskState.RUNNING for task in tasks.values())
    if not running and all(task.state in (TaskState.PENDING, TaskState.STARTING) for task in tasks.values()):
        return Verdict(Outcome.CREATED, (fact("no_task_runs"),))
    return Verdict(Outcome.RUNNING, (fact("tasks_run", count=running, of=len(tasks)),))


def deciding(tasks: Mapping[TaskId, TaskStatus], lead: TaskId, success: SuccessRule) -> tuple[TaskId, ...]:
    """The tasks whose success is the run's."""
    if success == "lead":
        return (lead,)
    return tuple(task for task in tasks if task.job in ("worker", *LEAD_JOBS) or task == lead)


def failing_since(task: TaskStatus) -> float:
    """When the unbroken row of failures began that ended in the final one: a cause fails before its followers do."""
    since = task.since or 0.0
    for past in reversed(task.history):
        if not past.failed:
            break
        since = past.ended
    return since
