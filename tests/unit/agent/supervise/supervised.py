"""Records of a run on one host, as its supervisor reads them: what a test does not name is usual."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import Any, ClassVar

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import said
from dtctl.agent.records.run_state import Ending, Intent, Intents, State
from dtctl.agent.records.spec import VERSION, Moved, RecoverySpec, Spec, TaskSpec
from dtctl.agent.records.values import Want
from dtctl.agent.run.intents import IntentFollower

USUAL_RECOVERY = {"max_restarts": 3, "backoff_min_s": 1.0, "backoff_max_s": 60.0, "reset_after_s": 600.0}


def recovery(**fields: Any) -> RecoverySpec:
    return made(RecoverySpec, **{**USUAL_RECOVERY, **fields})


def task(id_: str, **fields: Any) -> TaskSpec:
    return made(TaskSpec, **{"id": id_, "argv": ["x"], "env": {}, "secrets": [], "code": False, **fields})


def spec(*tasks: TaskSpec, **fields: Any) -> Spec:
    """Of run r on host h1, which is alone in it."""
    lead = tasks[-1]["id"] if tasks else "worker:0"
    whole = {
        "version": VERSION,
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
    """`error`: why no program could be run."""
    return made(Ending, code=number, fault="not_run" if error else None, why=said(error or ""), ended=1.0)


def killed(number: int) -> Ending:
    return made(Ending, signal=int(number), ended=1.0)


class QuietRole:
    """Belongs to a coordinator that never has a word for this host."""

    over = False
    is_removed = False
    is_superseded = False
    connected = True
    may_start = True
    recovering = False
    outdated = False
    moved: Moved | None = None
    first_steps: ClassVar[dict[str, float]] = {}
    left_behind: ClassVar[dict[str, float]] = {}

    def fence_s(self) -> float | None:
        return None

    def holds(self) -> bool:
        return False

    def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Intents | None:
        return None

    def register(self, waiting: select.poll) -> None:
        pass

    def due(self) -> float | None:
        return None

    def close(self) -> None:
        pass


class ScriptedRole:
    """Plays the coordinator: `script` is asked at each step what it wants."""

    def __init__(self, script: Callable[[ScriptedRole, State], Intents | None]) -> None:
        self.over = False
        self.is_removed = False
        self.is_superseded = False
        self.connected = True
        self.may_start = True
        self.recovering = False
        self.outdated = False
        self.moved: Moved | None = None
        self.silence_s = 0.0
        self.grace_s: float | None = None
        self.is_cut_off = False
        self.first_steps: dict[str, float] = {}
        self.left_behind: dict[str, float] = {}
        self.steps = 0
        self._script = script
        self.closed = False
        self._readable, self._writable = os.pipe()

    def fence_s(self) -> float | None:
        return self.grace_s

    def holds(self) -> bool:
        return self.is_cut_off

    def silent_s(self, now: float) -> float:
        return self.silence_s

    def step(self, now: float, wall: float, state: State, intent: IntentFollower) -> Intents | None:
        self.steps += 1
        return self._script(self, state)

    def register(self, waiting: select.poll) -> None:
        waiting.register(self._writable, select.POLLOUT)  # a pipe that can be written to ends each wait at once

    def due(self) -> float | None:
        return None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self._readable)
            os.close(self._writable)
