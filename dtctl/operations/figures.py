"""The figures of a run at one moment, computed once: every screen, document and page shows these.

A screen may leave a figure out, and words it in its own way; it does not compute another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass
from dtctl.operations.goodput import Goodput, Point, goodput_of
from dtctl.operations.pace import silent_after_s
from dtctl.operations.snapshot import RunStatus

if TYPE_CHECKING:
    from dtctl.agent.records.checkpoints import Checkpoint
    from dtctl.agent.records.run_state import Position


@dataclass(frozen=True)
class Figures:
    """None is unknown, or of no use any more, as the rate of a run that has ended."""

    elapsed_s: float | None
    """The time from the start of the run on its hosts until now, or until its outcome."""
    step: int | None
    target: int | None
    position: Position | None
    """The position within an epoch: `step` is then counted over the epochs, and rate and remaining time are estimates.
    """
    rate: float | None
    """Steps per second; None also if the last step is long ago."""
    silent_s: float | None
    """The time since the last step, if that is long ago."""
    left_s: float | None
    loss: str | None
    goodput: Goodput | None
    restarts: int
    checkpoint: Checkpoint | None
    """The newest complete one."""
    checkpoint_age_s: float | None

    @property
    def share(self) -> float | None:
        """The share of the target step that is done, from 0 to 1."""
        if self.step is None or not self.target:
            return None
        return min(1.0, self.step / self.target)


def figures_of(status: RunStatus, points: Sequence[Point] = ()) -> Figures:
    """`points`: of a scalar, for the goodput of a run whose logs report no steps."""
    progress, newest, over = status.progress, status.newest_complete, status.verdict.outcome.decided
    silent_s = status.time - progress.step_time if progress.step_time is not None and status.time else 0.0
    is_silent = silent_s >= silent_after_s(progress.step_gap_s)
    trains = not (over or is_silent)
    return Figures(
        elapsed_s=elapsed_s(status),
        step=progress.step,
        target=progress.target,
        position=progress.position,
        rate=progress.rate if trains else None,
        silent_s=silent_s if is_silent and not over else None,
        left_s=progress.left_s if trains else None,
        loss=progress.loss,
        goodput=goodput_of(status, points),
        restarts=status.restarts,
        checkpoint=newest,
        checkpoint_age_s=max(0.0, status.time - newest["time"]) if newest is not None and status.time else None,
    )


def elapsed_s(status: RunStatus) -> float | None:
    """The seconds from the start of the run on its hosts until its outcome, or until now; None if unknown."""
    if status.verdict.outcome.decided:
        account = status.coordination.view["account"] if status.coordination is not None else None
        if account is not None:
            return account["seconds"]
        until = max((past["ended"] for task in status.tasks.values() for past in task.entry["history"]), default=0.0)
    else:
        until = status.time
    return max(0.0, until - status.began) if until and status.began else None
