"""A run that has just been started, until its tasks are ready, or it is clear that they will not be. Pure.

The hosts bring it there, or end it: whoever watches only judges what the coordinator reports.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from dtctl.agent.run.policy import fingerprint
from dtctl.model import Recovery, TaskId, TaskState
from dtctl.operations.client.coordination import Coordination
from dtctl.operations.client.outcome import Outcome
from dtctl.operations.client.tasks import Exit, TaskStatus

EXPECTED_S = 30.0
"""Most programs are ready by then."""

SETTLE_S = 1.0
"""A program without a port runs as soon as it is started; within this time it shows whether it stays."""

_WITH_PORTS = 3
"""Ends alike of a program that finds its port in use, which may be over soon."""


@dataclass(frozen=True)
class FailedStart:
    """`cause` None: no task is to blame, but the run has failed."""

    seen: Coordination
    cause: TaskStatus | None
    gave_up: bool = False
    """The run would go on with the same end again and again."""

    @property
    def run_failed(self) -> bool:
        """If not, the other tasks continue without this one."""
        return self.seen.condition.verdict.outcome is Outcome.FAILED


def has_begun(seen: Coordination) -> bool:
    """Every task that is to run does, and those that others need are ready; or the run is decided."""
    if seen.phase in ("finishing", "ended"):
        return True
    return seen.phase != "starting" and not any(map(_is_to_come, present(seen)))


def present(seen: Coordination) -> list[TaskStatus]:
    """Tasks of hosts that the run does not go on without."""
    return [one for one in seen.tasks.values() if one.host not in seen.absent_hosts]


def _is_to_come(task: TaskStatus) -> bool:
    if task.state in (TaskState.PENDING, TaskState.STARTING):
        return True
    return task.state is TaskState.BACKOFF and bool(task.history) and task.history[-1].early


def not_listening(seen: Coordination) -> tuple[TaskId, ...]:
    """Tasks that run, that others wait for, and that have neither listened nor reported a step."""
    return tuple(one.id for one in present(seen) if one.state is TaskState.RUNNING and not one.ready)


def awaited(tasks: Iterable[TaskStatus], most: int = 3) -> str:
    """Those that a start waits for, and what they do: `ps:0 starting; worker:1 running, does not listen yet`."""
    waits = [f"{task.id} {_doing(task)}" for task in tasks if task.state is not TaskState.RUNNING or not task.ready]
    more = len(waits) - most
    return "; ".join(waits[:most]) + (f" and {more} more" if more > 0 else "")


def _doing(task: TaskStatus) -> str:
    return "running, does not listen yet" if task.state is TaskState.RUNNING else task.state.value


def failed_exits(seen: Coordination, known: Container[TaskId]) -> list[TaskStatus]:
    """Tasks whose first attempt has failed by itself, less those that are `known` already."""
    return [one for one in present(seen) if one.id not in known and _own(one) and not one.state.final]


def failed_start(seen: Coordination, recovery: Recovery) -> FailedStart | None:
    """Why the start has failed, or would again and again."""
    failed = [one for one in present(seen) if one.state is TaskState.FAILED]
    verdict = seen.condition.verdict
    if verdict.outcome is Outcome.FAILED:
        return FailedStart(seen, seen.tasks.get(verdict.cause) if verdict.cause else None)
    if failed:
        return FailedStart(seen, failed[0])
    if not recovery.repeat or (has_begun(seen) and _others_run(seen)):
        return None
    again = next((one for one in present(seen) if _repeats(_own(one), recovery)), None)
    return FailedStart(seen, again, gave_up=True) if again is not None else None


def _others_run(seen: Coordination) -> bool:
    """A task runs that has not failed, or the run is decided."""
    running = any(one.state is TaskState.RUNNING and not _own(one) for one in present(seen))
    return running or seen.phase in ("finishing", "ended")


def _own(task: TaskStatus) -> list[Exit]:
    """Ends that nobody asked for, of attempts whose peers were ready."""
    return [one for one in task.history if not (one.asked or one.early) and one.code != 0]


def _repeats(ends: list[Exit], recovery: Recovery) -> bool:
    """Another try has ended as the one before, and none of them has reported a step."""
    if not ends or any(one.step is not None for one in ends):
        return False
    number = ends[-1].code if ends[-1].signal is None else 128 + ends[-1].signal
    if number is None or number in recovery.retry:
        return False
    needed = _WITH_PORTS if "in use" in ends[-1].cause else 2
    last = [(one.code, one.signal, fingerprint(one.cause)) for one in ends[-needed:]]
    return len(last) == needed and len(set(last)) == 1
