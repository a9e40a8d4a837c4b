"""Why a run has failed: the one cause that its screens and pages tell, as facts."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.agent.run.policy import fingerprint
from dtctl.dataclass import dataclass
from dtctl.model import TaskId
from dtctl.operations.findings import End, Facts
from dtctl.operations.snapshot import RunStatus, TaskStatus


@dataclass(frozen=True)
class Failure:
    """The end that made a run fail."""

    task: TaskStatus
    """The one that failed first."""
    end: End
    tasks: tuple[TaskId, ...]
    """All that have ended in this way, in the order of the run."""
    hosts: tuple[str, ...]
    times: int
    """How often the run was interrupted in this way; its end is the last time."""


def failure_of(status: RunStatus) -> Failure | None:
    """The failure of a run that a program's end has decided; None of another run."""
    cause = status.verdict.cause
    if cause is None or status.verdict.hung or cause not in status.tasks:
        return None
    task = status.tasks[cause]
    end = Facts(status).end_of(task)
    if end is None:
        return None
    alike = [one for one in status.tasks.values() if one.id == cause or _ended_like(one, end)]
    return Failure(
        task,
        end,
        tuple(one.id for one in alike),
        tuple(dict.fromkeys(one.host for one in alike)),
        max(end.times, 1 + sum(_incidents_like(status, end))),
    )


def _ended_like(task: TaskStatus, end: End) -> bool:
    return bool(end.cause) and any(
        not past["asked"] and fingerprint(past["cause"]) == fingerprint(end.cause) for past in task.entry["history"]
    )


def _incidents_like(status: RunStatus, end: End) -> Iterator[bool]:
    """Whether each loss of the run was like this end. The end itself is none: nothing follows it."""
    incidents = status.coordination.view["incidents"] if status.coordination is not None else ()
    return (
        bool(end.cause) and fingerprint(one["cause"]) == fingerprint(end.cause) and one["ended"] != end.at
        for one in incidents
    )
