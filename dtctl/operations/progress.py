"""How far a run is, by what its tasks told last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtctl.model import TaskId, TaskState

if TYPE_CHECKING:
    from dtctl.operations.client.tasks import TaskStatus


@dataclass(frozen=True)
class Progress:
    """None where nobody has told it. `loss` in the digits of the log."""

    step: int | None = None
    step_time: float | None = None
    """When it was told, in epoch seconds of that host."""
    target: int | None = None
    rate: float | None = None
    """Steps a second."""
    loss: str | None = None

    @property
    def left_s(self) -> float | None:
        """Until the target, at the present rate."""
        if self.step is None or self.target is None or not self.rate:
            return None
        return max(0, self.target - self.step) / self.rate


def progress_of(tasks: Iterable[TaskStatus], lead: TaskId, target: int | None) -> Progress:
    """By the task that has come furthest, of those that train; the lead's loss and rate, where it tells them.

    Rates are of tasks that run: of another its last rate tells nothing about what is to come.
    """
    telling = [task for task in tasks if task.step is not None]
    if not telling:
        return Progress(target=target)
    furthest = max(telling, key=lambda task: (task.step or 0, task.id == lead))
    first = sorted(telling, key=lambda task: (task.id != lead, -(task.step or 0)))
    running = [task for task in first if task.state is TaskState.RUNNING]
    return Progress(
        step=furthest.step,
        step_time=furthest.step_time,
        target=target,
        rate=next((task.rate for task in running if task.rate is not None), None),
        loss=next((task.loss for task in first if task.loss is not None), None),
    )
