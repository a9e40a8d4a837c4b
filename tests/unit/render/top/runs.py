"""Runs for the tests of the screen: tasks as their agents would report them, at epoch second 1000."""

from __future__ import annotations

import dataclasses
from typing import Any

from dtctl.agent.records.reasons import fact, said
from dtctl.model import TaskId
from dtctl.operations.snapshot import Outcome, RunStatus, TaskStatus, Verdict
from dtctl.rooms.top.model import Histories, Line, Snapshot
from tests.unit.coordinated import record
from tests.unit.tasks import task_status

NOW = 1000.0
RUNS = Verdict(Outcome.RUNNING, (fact("tasks_run", count=4, of=4),))


def task(name: str, state: str = "running", host: str = "", **fields: Any) -> TaskStatus:
    found = TaskId.parse(name)
    usual: dict[str, Any] = {"attempt": 1, "pid": 7, "since": NOW - 60}
    if isinstance(fields.get("why"), str):
        fields["why"] = tuple(said(fields["why"]))
    return task_status(name, host or f"host-{found.index}", state, **{**usual, **fields})


def training(name: str, step: int = 100, **fields: Any) -> TaskStatus:
    usual: dict[str, Any] = {"step": step, "step_time": NOW - 1, "rate": 10.0, "loss": "0.5", "progress": NOW - 2}
    return task(name, **{**usual, **fields})


USUAL = (task("ps:0"), task("ps:1"), training("worker:0", 120), training("worker:1", 90, rate=5.0, loss="0.7"))


def run_status(*tasks: TaskStatus, verdict: Verdict = RUNS, target: int | None = 1000, **fields: Any) -> RunStatus:
    tasks = tasks or USUAL
    known = dataclasses.replace(
        record(created=NOW - 100), roster={one.id: one.host for one in tasks}, lead=tasks[-1].id, target_step=target
    )
    usual: dict[str, Any] = {"checkpoints": (), "time": NOW}
    return RunStatus(record=known, tasks={one.id: one for one in tasks}, verdict=verdict, **{**usual, **fields})


def snapshot(*tasks: TaskStatus, **fields: Any) -> Snapshot:
    return Snapshot(run_status(*tasks, **fields), NOW)


def histories(*statuses: RunStatus) -> Histories:
    found = Histories()
    for status in statuses:
        found.add(status)
    return found


def joined(line: Line) -> str:
    return "".join(text for text, _ in line)
