"""The machine form of a run's status: TFJob's words where it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtctl.agent.records.reasons import sentence
from dtctl.operations.client.snapshot import Condition, Coordination, Incident
from dtctl.operations.diagnosis.asking import in_short
from dtctl.operations.report.goodput import goodput_of
from dtctl.render.machine.diagnosis import problems
from dtctl.render.machine.document import checkpoints, errors
from dtctl.render.words import iso_utc

if TYPE_CHECKING:
    from dtctl.operations.client.snapshot import TaskStatus
    from dtctl.operations.history.record import RunRecord
    from dtctl.operations.report.tree import Goodput
    from dtctl.operations.status import Progress, RunStatus


def run_status(status: RunStatus) -> dict[str, Any]:
    tasks = status.tasks.values()
    jobs = dict.fromkeys(task.id.job for task in tasks)
    ended = [past.ended for task in tasks for past in task.history]
    decided = status.verdict.outcome.decided
    return {
        **_run(status.record),
        "conditions": _conditions(status),
        "replicaStatuses": {job: _replicas([task for task in tasks if task.id.job == job]) for job in jobs},
        "startTime": iso_utc(status.record.created),
        "completionTime": iso_utc(max(ended)) if decided and ended else None,
        **_cause(status),
        **(_coordination(status.coordination) if status.coordination else {}),
        "progress": _progress(status.progress),
        "problems": problems(in_short(status)),
        "goodput": _goodput(goodput_of(status)),
        "tasks": [{**task_status(task), "address": status.record.addresses.get(task.id)} for task in tasks],
        "checkpoints": [checkpoints(found) for found in status.checkpoints],
        "errors": errors(status.errors),
    }


def task_status(task: TaskStatus) -> dict[str, Any]:
    return {
        "task": str(task.id),
        "host": task.host,
        "state": task.state.value,
        "attempt": task.attempt,
        "restarts": task.restarts,
        "pid": task.pid,
        "ready": task.ready,
        "step": task.step,
        "stepLine": task.step_line or None,
        "stepTime": iso_utc(task.step_time),
        "stepsPerSecond": task.rate,
        "loss": task.loss,
        "outputTime": iso_utc(task.output_time),
        "cpus": task.cpu,
        "memoryBytes": task.memory_bytes,
        "complaint": None
        if task.complaint is None
        else {"text": task.complaint["text"], "since": iso_utc(task.complaint["since"])},
        "since": iso_utc(task.since),
        "nextStart": iso_utc(task.next_start),
        "reason": sentence(task.why),
        "why": list(task.why),
        "exitCode": task.code,
        "signal": task.signal,
        "askedToEnd": task.asked,
        "killedAfterSeconds": task.killed_after_s,
        "leftBehind": [{"pid": one.pid, "command": one.command} for one in task.left_behind],
        "history": [
            {
                "attempt": past.attempt,
                "started": iso_utc(past.started),
                "ended": iso_utc(past.ended),
                "exitCode": past.code,
                "signal": past.signal,
                "askedToEnd": past.asked,
                "cause": past.cause or None,
                "step": past.step,
            }
            for past in task.history
        ],
    }


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "step": progress.step,
        "targetStep": progress.target,
        "stepsPerSecond": progress.rate,
        "secondsLeft": progress.left_s,
        "loss": progress.loss,
    }


def _goodput(goodput: Goodput | None) -> dict[str, Any] | None:
    if goodput is None:
        return None
    gains = [
        {
            "kind": one.kind,
            "share": one.share,
            "fromSeconds": one.from_s or None,
            "toSeconds": one.to_s or None,
            "task": str(one.task) if one.task else None,
            "losses": one.count or None,
        }
        for one in goodput.gains
    ]
    return {
        "share": goodput.share,
        "since": iso_utc(goodput.since),
        "elapsedSeconds": goodput.elapsed_s,
        "seconds": dict(goodput.seconds),
        "gains": gains,
    }


def _run(record: RunRecord) -> dict[str, Any]:
    return {"cluster": record.cluster, "run": record.run, "lead": str(record.lead), "success": record.success}


def _conditions(status: RunStatus) -> list[dict[str, Any]]:
    """The one that holds now, then those of the past, oldest first."""
    if status.coordination is not None:
        now, past = status.coordination.condition, status.coordination.past
        return [_condition(now, holds=True), *(_condition(one, holds=False) for one in past)]
    since = [task.since for task in status.tasks.values() if task.since is not None]
    return [_condition(Condition(status.verdict, max(since, default=status.record.created)), holds=True)]


def _condition(condition: Condition, *, holds: bool) -> dict[str, Any]:
    outcome = condition.verdict.outcome.value
    return {
        "type": outcome,
        "status": "True" if holds else "False",
        "reason": f"Run{outcome}",
        "message": sentence(condition.verdict.why),
        "why": list(condition.verdict.why),
        "lastTransitionTime": iso_utc(condition.since),
    }


def _replicas(tasks: list[TaskStatus]) -> dict[str, int]:
    states = [task.state.value for task in tasks]
    counted = {"active": states.count("running") + states.count("starting") + states.count("stalled")}
    return counted | {name: states.count(name) for name in ("succeeded", "failed", "stopped", "lost")}


def _cause(status: RunStatus) -> dict[str, Any]:
    """The task that failed first, with the end of its log."""
    cause = status.verdict.cause
    if cause is None:
        return {"cause": None}
    return {"cause": {"task": str(cause), "logTail": status.tasks[cause].tail}}


def _coordination(told: Coordination) -> dict[str, Any]:
    return {
        "phase": told.phase,
        "waitingFor": told.missing,
        "restarts": told.restarts,
        "warnings": list(told.warnings),
        "incidents": [_incident(one) for one in told.incidents],
        "hosts": [
            {
                "host": host,
                "connected": one.connected,
                "heard": iso_utc(one.heard),
                "over": one.over,
                "absent": one.absent,
            }
            for host, one in told.contacts.items()
        ],
    }


def _incident(one: Incident) -> dict[str, Any]:
    return {
        "task": str(one.task) if one.task else None,
        "host": one.host,
        "reason": sentence(one.why),
        "why": list(one.why),
        "noticed": iso_utc(one.noticed),
        "restarted": [str(task) for task in one.restarted],
        "collateral": [
            {"task": str(task), "reason": sentence(why), "why": list(why)} for task, why in one.collateral.items()
        ],
        "step": one.step,
        "backToStep": one.back_to,
        "stepsLost": one.steps_lost,
        "startedAgain": iso_utc(one.begun),
        "recovered": iso_utc(one.recovered),
        "recoveredAfterSeconds": one.recovered_after_s,
        "givenUp": one.closed,
    }
