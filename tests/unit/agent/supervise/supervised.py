"""Records of a run on one host, as its supervisor reads them: what a test does not name is usual."""

from __future__ import annotations

from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Ending, Intent
from dtctl.agent.records.spec import RecoverySpec, Spec, TaskSpec
from dtctl.agent.records.values import Want

USUAL_RECOVERY = {"max_restarts": 3, "backoff_min_s": 1.0, "backoff_max_s": 60.0, "reset_after_s": 600.0}


def recovery(**fields: Any) -> RecoverySpec:
    return made(RecoverySpec, **{**USUAL_RECOVERY, **fields})


def task(id_: str, **fields: Any) -> TaskSpec:
    return made(TaskSpec, **{"id": id_, "argv": ["x"], "env": {}, "secrets": [], "code": False, **fields})


def spec(*tasks: TaskSpec, **fields: Any) -> Spec:
    """Of run r on host h1, which is alone in it."""
    lead = tasks[-1]["id"] if tasks else "worker:0"
    whole = {
        "version": 3,
        "run": "r",
        "cluster": "c",
        "host": "h1",
        "digest": "",
        "created": 0.0,
        "controller": "ada@laptop",
        "tasks": list(tasks),
        "grace_s": 10.0,
        "recovery": fields.pop("recovery", None) or recovery(),
        "coordinator": {"host": "h1", "address": "10.0.0.1:2221", "port": 2221},
        "lead": lead,
        "roster": [{"task": each["id"], "host": "h1"} for each in tasks] or [{"task": lead, "host": "h1"}],
    }
    return made(Spec, **{**whole, **fields})


def intent(want: Want, version: int = 1, **fields: Any) -> Intent:
    return made(Intent, want=want, version=version, **fields)


def code(number: int, error: str | None = None) -> Ending:
    return made(Ending, code=number, error=error, ended=1.0)


def killed(number: int) -> Ending:
    return made(Ending, signal=int(number), ended=1.0)
