"""Facts about a run, as signatures are tried on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import Fact, because, fact, said
from dtctl.agent.records.vitals import DiagnoseResult, Machine, TaskVitals
from dtctl.agent.records.whole_run import Contact, RunView
from dtctl.agent.run.cause import cause_of_end
from dtctl.operations.findings import Facts, Match
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, TaskStatus, Verdict
from tests.unit.coordinated import viewed
from tests.unit.tasks import changed, past_attempt, task_status

NOW = 1000.0
RUNS = Verdict(Outcome.RUNNING, (fact("tasks_run", count=2, of=2),))


def running(name: str, host: str = "gpu-a", **fields: Any) -> TaskStatus:
    """A task that trains."""
    usual: dict[str, Any] = {"attempt": 1, "pid": 7, "since": 900.0, "ready": True, "progress": 999.0}
    return task_status(name, host, **{**usual, **fields})


def ended(
    name: str,
    log: str,
    host: str = "gpu-a",
    *,
    code: int | None = 1,
    signal: int | None = None,
    beside: Fact | None = None,
) -> TaskStatus:
    """One that has failed, as its agent tells it by its log."""
    text = cause_of_end(log, code)
    how = fact("killed", signal=signal) if signal is not None else fact("exited", code=code)
    why = [how, *([fact("cause", text=text)] if text else []), *([beside] if beside else [])]
    past = past_attempt(1, 900.0, 960.0, code, signal, asked=False, cause=text)
    fields: dict[str, Any] = {"attempt": 1, "since": 960.0, "why": why, "history": [past], "tail": log[-2048:]}
    return task_status(name, host, "failed", code=code, signal=signal, **fields)


def says(task: TaskStatus, text: str, for_s: float = 40.0) -> TaskStatus:
    """The same with a complaint in its log."""
    complaint: Any = {"text": text, "since": NOW - for_s, "last": NOW - 1.0}
    return changed(task, complaint=complaint, progress=NOW - 1.0)


def facts(
    *tasks: TaskStatus,
    hosts: Mapping[str, DiagnoseResult] | None = None,
    machines: Mapping[str, Machine] | None = None,
    verdict: Verdict = RUNS,
    contacts: Mapping[str, Contact] | None = None,
    waits_for: str = "",
    idle: Mapping[str, Contact] | None = None,
) -> Facts:
    """Of a run in which task N of a job listens on HOST:222N, ps before workers."""
    roster = {task.id: task.host for task in tasks}
    record = RunRecord(
        cluster="demo",
        run="demo-1",
        file=None,
        hosts={},
        roster=roster,
        lead=tasks[0].id,
        success="lead",
        created=NOW - 100.0,
        addresses={task: f"{host}:{2222 + number}" for number, (task, host) in enumerate(roster.items())},
    )
    known = {task.id: task for task in tasks}
    condition = {"type": verdict.outcome.value, "why": list(verdict.why), "cause": None, "since": 900.0}
    view = viewed(time=NOW, waits_for=because(said(waits_for)))
    view = {**view, "run": "demo-1", "condition": condition, "hosts": contacts or {}}
    coordination = Coordination(checked(RunView, view), known, idle or {})
    status = RunStatus(record, known, verdict, (), NOW, coordination, machines=machines or {})
    return Facts(status, hosts or {})


def machine(**fields: Any) -> Machine:
    usual = {"time": NOW, "cpus": 4, "load": 1.0, "memory_bytes": 16 << 30, "available_bytes": 8 << 30, "waiting": {}}
    return made(Machine, **{**usual, **fields})


def vitals(**fields: Any) -> TaskVitals:
    return made(TaskVitals, **fields)


def host(tasks: Mapping[str, TaskVitals] | None = None, **fields: Any) -> DiagnoseResult:
    """What a host tells that has these tasks."""
    usual = {"run": "demo-1", "time": NOW, "machine": machine(), "tasks": dict(tasks or {})}
    return made(DiagnoseResult, **{**usual, **fields})


def who(found: Iterable[Match]) -> list[str]:
    """The tasks of what was seen."""
    return [str(task) for seen in found for task in seen.tasks]


def of_record(found: Facts, **changed: Any) -> Facts:
    """The same of a run of which something else is recorded."""
    record = dataclasses.replace(found.status.record, **changed)
    return dataclasses.replace(found, status=dataclasses.replace(found.status, record=record))


def decided(found: Facts) -> Facts:
    """The same after the run has failed."""
    verdict = Verdict(Outcome.FAILED, (fact("task_failed", task="worker:0"),))
    return dataclasses.replace(found, status=dataclasses.replace(found.status, verdict=verdict))
