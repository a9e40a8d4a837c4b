"""A report of a run that was restarted, and has failed, by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import Fact, fact, said
from dtctl.agent.records.whole_run import HistoryEvent, RunView
from dtctl.agent.rooms.metrics.records import MetricsResult
from dtctl.agent.run import goodput
from dtctl.errors import TransportError
from dtctl.operations.events import EventHistory
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.pages.report import Report, put_together
from tests.unit.coordinated import incident, record, viewed
from tests.unit.tasks import checkpoint, checkpoint_directory, past_attempt, task_status

EVIL = "<script>alert('x')</script><img src=https://evil.example/x onerror=alert(1)>\u202e\x1b[31m`|*_"
"""What a host may say: tags, an address, an attribute, marks of Markdown, and what reorders or colours text."""

CAUSE = fact("said", text=EVIL)


def account() -> dict[str, Any]:
    """100 s: 10 waits, 10 starts, 40 of steps; lost with 2 s of work; 6 and 7 to come back; 15 again, 10 new."""
    kept = goodput.begun(1000.0)

    def passed(seconds: int, situation: str, **fields: Any) -> None:
        for _ in range(seconds):
            goodput.account_for(kept, 1.0, situation, {}, {}, **fields)

    def train(first: int, last: int) -> None:
        for step in range(first, last + 1):
            goodput.account_for(kept, 1.0, "train", {"worker:0": step}, {"worker:0": step - 1})

    passed(10, "wait")
    passed(9, "start")
    train(0, 40)
    passed(2, "train")
    passed(6, "wait", lost=True)
    passed(6, "start", lost=True)
    train(25, 50)
    return dict(kept)


def happening(at: float, task: str, before: str, after: str, attempt: int = 1, *why: Fact) -> HistoryEvent:
    fields = {"host": "c", "task": task, "attempt": attempt, "from": before, "to": after, "why": list(why)}
    return checked(HistoryEvent, {"time": at, **fields})


def events() -> EventHistory:
    decided = {"from": "Running", "to": "Failed", "why": [CAUSE]}
    moves = [
        made(HistoryEvent, time=1000.0, kind="request", why=[fact("asked_up")], by=EVIL),
        happening(1010.0, "worker:0", "pending", "starting"),
        happening(1011.0, "worker:0", "starting", "running"),
        happening(1060.0, "worker:0", "running", "running", 1, fact("ending")),
        happening(1062.0, "worker:0", "running", "backoff", 1, CAUSE),
        happening(1068.0, "worker:0", "backoff", "starting", 2),
        happening(1069.0, "worker:0", "starting", "running", 2),
        happening(1100.0, "worker:0", "running", "failed", 2, CAUSE),
        checked(HistoryEvent, {"n": 9, "time": 1100.0, "kind": "condition", "task": "worker:0", **decided}),
    ]
    return EventHistory(tuple(moves))


def scalars() -> Metrics:
    points = tuple(Point(step, 1020.0 + step, 1.0 / (step + 1)) for step in range(40))
    loss = Series("loss", EVIL, "c", f"/out/{EVIL}", points, 40, 0.025, 1.0, 1100.0)
    odd = Series(EVIL, "eval", "c", "/out", (Point(1, 1.0, float("nan")), Point(2, 2.0, float("inf"))), 2)
    return Metrics("digits-1", (loss, odd), {"c": made(MetricsResult, run="digits-1", time=1.0, dirs=[f"/out/{EVIL}"])})


def status(outcome: Outcome = Outcome.FAILED, **fields: Any) -> RunStatus:
    view = checked(
        RunView, viewed("Failed", EVIL, "worker:0", alerts=[{"why": said(EVIL)}], **{"account": account(), **fields})
    )
    known = dataclasses.replace(record(), file=None, target_step=100)
    coordination = Coordination.of(view, known.roster)
    history = [past_attempt(1, 1011.0, 1062.0, 1), past_attempt(2, 1069.0, 1100.0, 1)]
    fields = {"attempt": 2, "restarts": 1, "since": 1100.0, "why": [CAUSE], "step": 50, "history": history}
    lead = task_status("worker:0", "c", "failed", tail=EVIL, code=1, **fields)
    saves = tuple(
        checkpoint(f"model.ckpt-{step}", step, time=1020.0 + step, size_bytes=10_000_000) for step in (45, 25, 5)
    )
    broken = checkpoint(EVIL, time=1099.0, size_bytes=5, complete=False, problem=EVIL)
    found = checkpoint_directory("c", f"/out/{EVIL}", broken, *saves, incomplete=[broken], problem=EVIL)
    verdict = Verdict(outcome, (CAUSE,), lead.id if outcome is Outcome.FAILED else None)
    tasks = {**coordination.tasks, lead.id: lead}
    return RunStatus(known, tasks, verdict, (found,), 1100.0, coordination)


def report(file: Path | None = None, **fields: Any) -> Report:
    found = status(**{"incidents": [incident("worker:0", host="c", noticed=1062.0)], **fields})
    known = dataclasses.replace(found.record, file=file)
    facts = {"c": {"system": EVIL, "python": "3.11.2", "hostname": EVIL, "cpus": 2, "memory_bytes": 8 * 10**9}}
    away = TransportError(f"cannot reach a: {EVIL}")
    return put_together(
        dataclasses.replace(found, record=known, errors={"a": away}), events(), scalars(), facts, {"TOKEN": "abcd1234"}
    )
