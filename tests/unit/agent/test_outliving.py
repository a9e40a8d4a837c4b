"""What not even SIGKILL ends is told, and looked after less often."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.agent.host import processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Start
from dtctl.agent.supervise.attempt import Attempt
from dtctl.agent.supervise.supervisor import TaskContext
from dtctl.agent.supervise.task import ENDING_LOOK_S, LOOK_S, Task
from tests.unit.agent.supervise import supervised

STOP = supervised.intent("stop", grace_s=1.0)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> processes.Process:
    """This process, in the part of one that hangs in the kernel and hears no signal."""
    me = processes.find(processes.myself())
    assert me is not None
    monkeypatch.setattr(processes, "tree", lambda *_: [me])
    monkeypatch.setattr(processes, "send_signal", lambda *_: None)
    monkeypatch.setattr(processes.Ladder, "_terminate", lambda *_: None)
    return me


def test_a_ladder_tells_what_is_left_five_seconds_after_sigkill(hanging: processes.Process) -> None:
    ladder = processes.Ladder(processes.myself(), [], 10.0, 100.0)
    for now in (100.0, 109.0, 110.0, 115.0):
        assert not ladder.step(now)
        assert ladder.outlived(now) == []
    assert not ladder.step(115.1)
    assert ladder.outlived(115.1) == [hanging]


def test_a_task_tells_it_in_its_entry(tmp_path: Path, hanging: processes.Process) -> None:
    told: list[object] = []
    spec = supervised.spec(supervised.task("worker:0"))
    around = TaskContext(
        str(tmp_path), spec, {"PATH": "/bin"}, {}, None, lambda *fields: told.append(fields), told.append
    )
    entry = made(Entry, state="running", attempt=1)
    directory = tmp_path / "tasks" / "worker-0" / "attempt-1"
    directory.mkdir(parents=True)
    task = Task(spec["tasks"][0], entry, around, 100.0, 0.0)
    attempt = Attempt(str(directory), 100.0)
    me = processes.myself()
    attempt._start = made(Start, pid=me["pid"], start_time=me["start_time"], boot_id=me["boot_id"], started=0.0)
    task._attempt = attempt
    for now in (100.0, 101.0, 106.0):
        task.step(STOP, now, now)
        assert entry["left"] == []
        assert task.due(now) == now + ENDING_LOOK_S
    told.clear()
    task.step(STOP, 106.5, 106.5)
    assert entry["left"] == [{"pid": hanging.pid, "command": processes.command(hanging.pid)}]
    assert told == [True]
    assert task.due(106.5) == 106.5 + LOOK_S
    assert entry["state"] == "running"
