"""A task between two attempts: when its next step is due, and what it then does. No process is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.agent.host import paths
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Intent, Start
from dtctl.agent.supervise import keeper
from dtctl.agent.supervise.supervisor import TaskContext
from dtctl.agent.supervise.task import Task
from tests.unit.agent.supervise import supervised

RUN = supervised.intent("run")
HOLD = supervised.intent("hold")


class Failing:
    """A task whose attempts end with exit code 3 as soon as they are begun."""

    def __init__(self, directory: Path, **recovery: float) -> None:
        given = supervised.recovery(**{"max_restarts": 9, "backoff_min_s": 0.0, **recovery})
        spec = supervised.spec(supervised.task("worker:0"), recovery=given)
        around = TaskContext(str(directory), spec, {"PATH": "/bin"}, {}, None, lambda *_: None, lambda _: None)
        self.task = Task(spec["tasks"][0], made(Entry), around, 100.0, 0.0)

    def step(self, intent: Intent, now: float) -> tuple[str, int]:
        self.task.step(intent, now, now)
        return self.task.entry["state"], self.task.entry["attempt"]


@pytest.fixture(autouse=True)
def attempts_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(launch: keeper.AttemptSpec) -> None:
        paths.write_json(f"{launch.directory}/start.json", made(Start, started=1.0))
        paths.write_json(f"{launch.directory}/exit.json", supervised.code(3))

    monkeypatch.setattr(keeper, "launch", fail)


def test_without_a_back_off_the_next_attempt_is_due_at_once(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    assert failing.step(RUN, 100.0) == ("starting", 1)
    assert failing.step(RUN, 100.1) == ("backoff", 1)
    assert failing.task.due(100.1) <= 100.1
    assert failing.step(RUN, 100.1) == ("starting", 2)


def test_the_next_attempt_is_due_when_the_back_off_ends(tmp_path: Path) -> None:
    failing = Failing(tmp_path, backoff_min_s=30.0)
    failing.task.entry["restarts"] = 1
    failing.step(RUN, 100.0)
    failing.step(RUN, 100.0)
    due = failing.task.due(100.0)
    assert 130.0 <= due <= 133.0
    assert failing.step(RUN, due - 0.1) == ("backoff", 1)
    assert failing.step(RUN, due) == ("starting", 2)


def test_what_is_held_in_its_back_off_is_not_due_all_the_time(tmp_path: Path) -> None:
    failing = Failing(tmp_path)
    failing.step(RUN, 100.0)
    failing.step(RUN, 100.0)
    assert failing.step(HOLD, 200.0) == ("backoff", 1)
    assert failing.task.due(200.0) == 201.0
    assert failing.step(RUN, 201.0) == ("starting", 2)
