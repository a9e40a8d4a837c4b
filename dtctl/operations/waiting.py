"""A run that has no machines yet: it waits for those of an engine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from dtctl.agent.records.reasons import fact
from dtctl.errors import DtctlError
from dtctl.model import TaskState
from dtctl.operations.engines import Allocation, allocation_of, engine_of_record
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Outcome, RunStatus, TaskStatus, Verdict


def has_no_machines(record: RunRecord, allocation: Allocation) -> bool:
    """Whether nothing of the run can be asked on machines: it waits for them, or they are being prepared."""
    follows = allocation.phase == "running" and allocation.run not in (None, record.run)
    return allocation.phase == "pending" or not record.begun or follows


def status_of_waiting(record: RunRecord, allocation: Allocation) -> RunStatus:
    """The status of a run that has no machines yet, or never had any."""
    over = allocation.phase == "ended"
    state = TaskState.STOPPED if over else TaskState.PENDING
    why = fact("no_task_runs")
    return RunStatus(
        record=dataclasses.replace(record, run=allocation.run or record.run),
        tasks={task: TaskStatus.unknown(task, host, why, state) for task, host in record.roster.items()},
        verdict=Verdict(Outcome.STOPPED if over else Outcome.CREATED, (why,)),
        checkpoints=(),
        time=time.time(),
        allocation=allocation,
    )


def given_back(found: RunStatus, allocation: Allocation) -> RunStatus:
    """The status of a run whose machines are gone: it has failed unless it was decided before, and its tasks were ended
    with the job. Those of a node that has failed may go on if only its network has.
    """
    if found.verdict.outcome.decided or not found.time:
        return found
    why = fact("said", text=f"job {allocation.job} has ended: {allocation.state}")
    state = TaskState.LOST if allocation.is_node_failure else TaskState.STOPPED
    tasks = {
        task: one if one.state.final else TaskStatus(task, one.host, state, {**one.entry, "why": [why]})
        for task, one in found.tasks.items()
    }
    verdict = Verdict(Outcome.FAILED, (why,))
    return dataclasses.replace(found, tasks=tasks, verdict=verdict, coordination=None, away=None, errors={})


def without_machines(record: RunRecord) -> Allocation | None:
    """What is known of the machines of a run that has none now, so that there is nothing to stop on any; else None."""
    allocation = allocation_of(record)
    deadline = time.monotonic() + REQUEUE_S
    while allocation is not None and allocation.ending and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
        allocation = allocation_of(record)
    return allocation if allocation is not None and allocation.phase != "running" else None


def await_machines(
    record: RunRecord,
    newer: Callable[[RunRecord, Allocation], RunRecord | None],
    seen: Callable[[Allocation], None],
    deadline: float | None = None,
) -> RunRecord:
    """The run as it is written down when an engine has lent it machines; one with machines is returned as it is.

    `newer`: reads what has been written down since. `seen` is called with each answer of the engine. `deadline`: on the
    monotonic clock; raises TimeoutError then. Raises DtctlError for a job that has ended before.
    """
    while (held := allocation_of(record)) is not None and has_no_machines(record, held):
        if held.phase == "ended":
            detail = f"job {held.job} has ended: {held.state}"
            raise DtctlError(f"run {record.run or record.cluster} has not started", detail=detail)
        seen(held)
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError(f"run {record.run or record.cluster} still waits for its machines")
        time.sleep(QUEUE_LOOK_S)
        record = newer(record, held) or record
    return record


QUEUE_LOOK_S = 2.0
"""The interval at which a command that waits for machines asks their engine."""


def leave_queue(record: RunRecord, allocation: Allocation) -> None:
    """Takes a run that waits out of the queue of its engine."""
    engine = engine_of_record(record)
    if engine is not None and allocation.phase == "pending":
        engine.cancel(allocation)


REQUEUE_S = 30.0
"""How long the job of a run that was stopped may take to end, or to wait in the queue again."""
_LOOK_S = 0.5


def is_queued_again(ended: RunStatus) -> bool:
    """Whether the job of a run that was stopped will start another run; waits until that is certain."""
    if ended.verdict.outcome is not Outcome.STOPPED or engine_of_record(ended.record) is None:
        return False
    deadline = time.monotonic() + REQUEUE_S
    while time.monotonic() < deadline:
        found = allocation_of(ended.record)
        if found is None or found.phase == "pending":
            return found is not None
        if found.phase == "running" and found.run not in (None, ended.record.run):
            return True
        if found.phase == "ended" and not found.ending:
            return False
        time.sleep(_LOOK_S)
    return False
