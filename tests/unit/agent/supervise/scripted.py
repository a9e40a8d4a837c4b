"""Coordinators of tests: what an agent's role tells its supervisor."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import ClassVar

from dtctl.agent.records.run_state import Intents, State
from dtctl.agent.records.spec import Moved
from dtctl.agent.run.intents import IntentFollower


class QuietRole:
    """Belongs to a coordinator that never has a word for this host."""

    over = False
    connected = True
    may_start = True
    recovering = False
    outdated = False
    moved: Moved | None = None
    first_steps: ClassVar[dict[str, float]] = {}

    def fence_s(self) -> float | None:
        return None

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
        self.connected = True
        self.may_start = True
        self.recovering = False
        self.outdated = False
        self.moved: Moved | None = None
        self.silence_s = 0.0
        self.grace_s: float | None = None
        self.first_steps: dict[str, float] = {}
        self.steps = 0
        self._script = script
        self.closed = False
        self._readable, self._writable = os.pipe()

    def fence_s(self) -> float | None:
        return self.grace_s

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
