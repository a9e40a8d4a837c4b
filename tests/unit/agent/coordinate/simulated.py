"""Tasks whose processes exist in memory: the agent's own Task and policy decide, the processes are a test's to end."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Because
from dtctl.agent.records.run_state import Ending, Entry, Hang, Intent, Repaired, Start
from dtctl.agent.records.spec import Member, RecoverySpec, Spec, TaskSpec, comes_back_alone
from dtctl.agent.records.values import Repair
from dtctl.agent.run import policy
from dtctl.agent.run.cause import cause_of_end
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise import autopsy
from dtctl.agent.supervise import task as supervised
from dtctl.agent.supervise.context import TaskContext
from dtctl.agent.supervise.task import Task


class SimAttempt:
    """In the place of an attempt with files and processes: it runs at once, and ends when it is asked to."""

    def __init__(self, directory: str, now: float) -> None:
        self.directory = directory
        self.key = directory
        self.began = now
        self.start: Start | None = None
        self.trainer = None
        self.exit: Ending | None = None
        self.log = ""
        """Its end."""
        self.stubborn = False
        """Does not end when it is asked to."""
        self.ending = False
        self._asked = False
        self.left_behind: list[Any] = []
        self.killed_after_s: float | None = None

    def update(self, now: float, wall: float) -> None:
        if self.start is None:
            self.start = made(Start, started=wall)
        if self._asked and not self.stubborn and self.exit is None:
            self.dies(made(Ending, signal=15), wall)

    def dies(self, ending: Ending, wall: float) -> None:
        self.exit = ending.copy()
        self.exit["ended"] = wall

    def is_unwritten(self, now: float) -> bool:
        return False

    def runs(self, now: float) -> bool:
        return self.exit is None

    def end(self, grace_s: float, now: float) -> bool:
        self._asked = True
        return True

    def left(self, now: float) -> list[Any]:
        return []

    def cleared(self, asked: bool, grace_s: float, now: float) -> bool:
        return True


class SimObservation:
    """`ready_s` after the start of its attempt the task listens; `hung` is what the watchdog makes of it."""

    def __init__(self, task: SimTask, began: float) -> None:
        self._task, self._began = task, began
        self.hung: Hang | None = None

    def sees_ready(self, now: float) -> bool:
        entry = self._task.entry
        is_new = not entry["ready"] and now - self._began >= self._task.ready_s
        entry["ready"] = entry["ready"] or is_new
        return is_new

    def update(self, now: float, wall: float) -> Hang | None:
        return self.hung

    def has_news(self) -> bool:
        return False

    def sees_progress(self, now: float, wall: float) -> None:
        """The test sets the steps."""

    def sees_end(self, now: float, wall: float) -> None:
        """The same."""


class SimTask:
    """One task and what its agent makes of it."""

    def __init__(self, place: Member, spec: Spec, now: float, wall: float) -> None:
        self.ready_s = 1.0
        self.intent = made(Intent, want="hold")
        self.without: list[str] = []
        """Who takes no part in its newest attempt."""
        self.stubborn = False
        self.events: list[dict[str, Any]] = []
        self.repair: Callable[[Repair, int], Repaired] = lambda how, attempt: made(Repaired, attempt=attempt, how=how)
        """What its host does about damaged checkpoints, if it is the lead."""
        self.entry = made(Entry, since=wall)
        self.place = place
        self.supervise(spec, now, wall)

    def supervise(self, spec: Spec, now: float, wall: float) -> None:
        """Its agent takes it up."""
        own = comes_back_alone(self.place["role"], self.place["scope"])
        described = made(TaskSpec, id=self.place["task"], argv=["x"], env={}, secrets=[], code=False, own=own)
        self._task = Task(described, self.entry, self.around(spec), now, wall)

    def around(self, spec: Spec) -> _Around:
        return _Around(self, spec)

    def step(self, now: float, wall: float) -> None:
        if self._attempt is not None:
            self._attempt.stubborn = self.stubborn
        self._task.step(self.intent, now, wall)

    @property
    def _attempt(self) -> SimAttempt | None:
        return self._task._attempt  # type: ignore[return-value]

    def die(self, now: float, wall: float, ending: Ending, log: str = "") -> None:
        """Its process has ended by itself."""
        assert self._attempt is not None, "it does not run"
        self._attempt.log = log
        self._attempt.dies(ending, wall)
        self.step(now, wall)

    def hang(self, hang: Hang) -> None:
        """From now on the watchdog takes this attempt for hung."""
        self._task._observation.hung = hang  # type: ignore[union-attr]


class _Around(TaskContext):
    """Nothing is launched, and what is observed is simulated."""

    def __init__(self, task: SimTask, spec: Spec) -> None:
        super().__init__(RunFiles("/simulated"), spec, {}, {}, self._note, lambda _: None)
        self._task = task
        self.repair: Any = SimpleNamespace(step=lambda how, attempt: task.repair(how, attempt))

    def _note(self, task: str, before: str, after: str, attempt: int, why: Because, **fields: Any) -> None:
        self._task.events.append({"task": task, "from": before, "to": after, **why, **fields})

    def observe(self, attempt: Any, now: float) -> Any:
        """In the place of Observation."""
        return SimObservation(self._task, now)

    def launch(self, task: TaskSpec, attempt: int, directory: str, without: Collection[str]) -> Any:
        self._task.without = list(without)


def _judge(attempt: Any, ending: Ending, entry: Entry, port: object, recovery: RecoverySpec, masks: object) -> Any:
    """In place of a look at the host: the verdict by the exit, and by the end of the attempt's log."""
    verdict = policy.verdict(ending, cause_of_end(attempt.log, ending["code"]), recovery)
    return policy.Verdict(True) if entry["state"] == "stalled" else verdict, attempt.log


def simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the seam between Task and the machine into memory."""
    own = SimpleNamespace(
        last_attempt=lambda *_: 0,
        attempt_directory=lambda *words: "/".join(map(str, words)),
        make_directory=lambda _: 0,
    )
    monkeypatch.setattr(supervised, "Attempt", SimAttempt)
    monkeypatch.setattr(supervised, "Observation", lambda around, _, __, attempt, now: around.observe(attempt, now))
    monkeypatch.setattr(supervised, "paths", own)
    monkeypatch.setattr(supervised, "keeper", SimpleNamespace(launch=lambda _: None))
    monkeypatch.setattr(autopsy, "full_verdict", _judge)
