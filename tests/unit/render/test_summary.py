"""The first line of `dtctl status`: the answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.model import TaskState
from dtctl.operations.client.outcome import Outcome, Verdict
from dtctl.operations.status import RunStatus
from dtctl.render.status import summary
from tests.unit.render.test_safe_output import run_status

RUNS = Verdict(Outcome.RUNNING, (fact("tasks_run", count=4, of=4),))
STEPS: dict[str, Any] = {"step": 3250, "step_time": 99.0, "rate": 61.0, "loss": "0.041"}


def status(verdict: Verdict = RUNS, now: float = 100.0, **told: Any) -> RunStatus:
    found = run_status()
    record = dataclasses.replace(found.record, created=18.0, target_step=20000)
    tasks = {
        name: dataclasses.replace(task, state=TaskState.RUNNING, **{"step": None, **told})
        for name, task in found.tasks.items()
    }
    return dataclasses.replace(found, record=record, tasks=tasks, verdict=verdict, checkpoints=(), time=now)


def saved_at(step: int, time: float, found: RunStatus) -> RunStatus:
    (place,) = run_status().checkpoints
    assert place.newest_complete is not None
    newest = dataclasses.replace(place.newest_complete, step=step, time=time)
    return dataclasses.replace(found, checkpoints=(dataclasses.replace(place, newest_complete=newest),))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (status(), " 1m22s · 4 of 4 tasks run"),
        (status(**STEPS), " 1m22s · step 3250/20000 · 61 steps/s · done in 4m34s · loss 0.041"),
        (
            saved_at(3300, 99.5, status(**STEPS)),
            " 1m22s · step 3300/20000 · 61 steps/s · done in 4m33s · loss 0.041 · checkpoint 0s ago",
        ),
        (
            saved_at(3300, 98.5, status(**STEPS)),
            " 1m22s · step 3250/20000 · 61 steps/s · done in 4m34s · loss 0.041 · checkpoint 1s ago",
        ),
        (status(now=200.0, **STEPS), " 3m2s · step 3250/20000 · last step 1m41s ago · loss 0.041"),
        (
            status(Verdict(Outcome.SUCCEEDED, (fact("workers_finished"),)), **STEPS),
            " · every worker finished · step 3250/20000 · loss 0.041",
        ),
        (
            status(Verdict(Outcome.RESTARTING, (fact("exited", code=1),)), **{**STEPS, "rate": None}),
            " · exit code 1 · 1m22s since the start · step 3250/20000 · loss 0.041",
        ),
    ],
    ids=["without steps", "training", "saved since", "saved before", "silent", "done", "restarting"],
)
def test_the_answer_stands_in_one_line(found: RunStatus, words: str) -> None:
    assert str(summary(found)) == f"{found.record.run}: {found.verdict.outcome.value}{words}"
