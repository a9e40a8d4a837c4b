"""Where a trainer hung, by what was asked of it before it was killed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact, sentence
from dtctl.agent.records.run_state import Entry, Start
from dtctl.agent.run import policy
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise.attempt import LEAVE_S, Attempt
from dtctl.agent.supervise.autopsy import hung_in, left_behind
from dtctl.agent.supervise.context import TaskContext
from dtctl.agent.supervise.observation import LOOK_S
from dtctl.agent.supervise.task import ENDING_LOOK_S, Task
from tests.unit.agent.supervise import supervised

FAULTHANDLER = """\
step 4
Fatal Python error: Aborted

Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 622 in wait

Current thread 0x00007f02 (most recent call first):
  File "/home/train/x/train.py", line 9 in wait_for_the_ps
  File "/home/train/x/train.py", line 7 in train

Extension modules: numpy.core._multiarray_umath (total: 1)
"""
OTHER_THREADS = FAULTHANDLER.replace("Current thread", "Thread")
TENSORFLOW = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 324 in wait
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/tensorflow/python/eager/execute.py", line 53 in quick_execute
  File "/opt/venv/lib/python3.11/site-packages/keras/src/engine/training.py", line 1807 in fit
  File "/home/train/.dtctl/work/x/tree/input.py", line 31 in next_batch
  File "/home/train/.dtctl/work/x/tree/train.py", line 7 in <module>
"""
OF_THE_INPUT = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/socket.py", line 706 in readinto
  File "/home/train/.dtctl/work/x/tree/input.py", line 5 in fetch
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/opt/venv/lib/python3.11/site-packages/absl/app.py", line 254 in _run_main
"""
FULL_PY_SPY = """\
Thread 7 (idle): "MainThread"
    wait (/usr/lib/python3.11/threading.py:324)
    get (/usr/lib/python3.11/queue.py:171)
    next_batch (/home/train/.dtctl/work/x/tree/input.py:31)
    <module> (/home/train/.dtctl/work/x/tree/train.py:7)
"""
SHORT_PY_SPY = """\
Thread 7 (idle): "MainThread"
    wait (threading.py:324)
    next_batch (input.py:31)
"""
PY_SPY = """\
process 7: Name:\tpython3
  thread 7 (python3) waits in futex_wait
Process 7: python3 train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 8 (idle): "QueueRunner"
    wait (threading.py:324)
Thread 7 (idle): "MainThread"
    recv (multihost.py:41)
    train (train.py:7)
"""
KERNEL = "process 7: Name:\tsh\n  thread 7 (sh) waits in do_wait\n"


@pytest.mark.parametrize(
    ("stack", "log", "frame"),
    [
        (PY_SPY, FAULTHANDLER, "recv (multihost.py:41)"),
        (KERNEL, FAULTHANDLER, "wait_for_the_ps (train.py:9)"),
        ("", OTHER_THREADS, "wait_for_the_ps (train.py:9)"),
        ("", TENSORFLOW, "next_batch (input.py:31), in quick_execute (execute.py:53)"),
        ("", OF_THE_INPUT, "fetch (input.py:5), in readinto (socket.py:706)"),
        (FULL_PY_SPY, TENSORFLOW, "next_batch (input.py:31), in wait (threading.py:324)"),
        (SHORT_PY_SPY, "", "next_batch (input.py:31), in wait (threading.py:324)"),
        ("", FAULTHANDLER.split("Current")[0], "wait (threading.py:324)"),
        (KERNEL, "step 4\n", "do_wait (the kernel)"),
        (KERNEL.replace("do_wait", "?"), "step 4\n", None),
        ("", "", None),
    ],
    ids=[
        *("py-spy", "faulthandler", "no current thread", "TensorFlow", "a thread of the input", "py-spy's full names"),
        *("py-spy's short names", "no frame of the user", "kernel", "hidden", "nothing"),
    ],
)
def test_the_innermost_frame_of_the_users_code_is_reported(
    tmp_path: Path, stack: str, log: str, frame: str | None
) -> None:
    (tmp_path / "stack").write_text(stack)
    assert hung_in(str(tmp_path), log) == (frame or "")


class Table:
    """A process table in which nothing is ever signalled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: list[Any] = []
        self.signals: list[int] = []
        monkeypatch.setattr(processes, "tree", lambda *_: list(self.there))
        monkeypatch.setattr(processes, "command", lambda pid: f"python {pid}.py")
        monkeypatch.setattr(processes, "send_signal", self._signal)

    def has(self, *pids: int) -> None:
        stat = b" ".join([b"S", b"1", *[b"0"] * 17, b"77", b"0", b"0"])
        self.there = [processes.Process(pid, b"1 (x) " + stat) for pid in pids]

    def _signal(self, found: Iterable[Any], number: int) -> None:
        self.signals += [number for _ in found]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


def test_short_lived_children_are_not_reported(table: Table, tmp_path: Path) -> None:
    attempt = Attempt(str(tmp_path), 0.0)
    table.has(5)
    assert not attempt.cleared(False, 30.0, 100.0)
    assert attempt.ending
    table.has()
    assert attempt.cleared(False, 30.0, 100.0 + LEAVE_S / 2)
    assert (attempt.left_behind, table.signals) == ([], [])


def test_remaining_children_are_named_and_killed(table: Table, tmp_path: Path) -> None:
    attempt = Attempt(str(tmp_path), 0.0)
    table.has(5, 6)
    assert not attempt.cleared(False, 30.0, 100.0)
    assert table.signals == []
    table.has(6)
    assert not attempt.cleared(False, 30.0, 100.0 + LEAVE_S)
    assert attempt.left_behind == [{"pid": 6, "command": "python 6.py"}]
    assert table.signals
    table.has()
    assert attempt.cleared(False, 30.0, 101.0)


def test_a_reason_names_three_and_counts_the_others() -> None:
    assert left_behind([]) == []
    text = sentence([fact("exited", code=0), *left_behind([{"pid": n, "command": "sh"} for n in (1, 2, 3, 4, 5)])])
    assert text == (
        "exit code 0; left 5 processes behind (pid 1, sh; pid 2, sh; pid 3, sh; and 2 more), which were ended"
    )


@pytest.mark.parametrize(("want", "state"), [("stop", "stopped"), ("run", "starting")])
def test_a_task_killed_after_a_stop_says_so_first(want: Any, state: str) -> None:
    verdict = policy.Verdict(retry=True)
    verdict.killed_after_s = 30.0
    entry: Any = {"state": "running", "asked": True, "restarts": 0, "generation": 1, "history": []}
    by: Any = {
        "why": [fact("stopped_by", by="ada")],
    }
    intent = supervised.intent(want, generation=2, **by)
    decision = policy.after_exit(
        supervised.killed(9), verdict, entry, intent, 1.0, supervised.recovery(), own=True, jitter=0.0
    )
    assert (decision.state, sentence(decision.why)) == (state, "killed after 30 s: stopped by ada")


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


def test_survivors_are_reported_five_seconds_after_sigkill(hanging: processes.Process) -> None:
    ladder = processes.Ladder(lambda: [hanging], 10.0, 100.0)
    for now in (100.0, 109.0, 110.0, 115.0):
        assert not ladder.step(now)
        assert ladder.outlived(now) == []
    assert not ladder.step(115.1)
    assert ladder.outlived(115.1) == [hanging]


def test_survivors_are_in_the_entry_of_the_task(tmp_path: Path, hanging: processes.Process) -> None:
    reasons: list[object] = []
    spec = supervised.spec(supervised.task("worker:0"))
    around = TaskContext(
        RunFiles(str(tmp_path)), spec, {"PATH": "/bin"}, {}, lambda *fields, **_: reasons.append(fields), reasons.append
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
    reasons.clear()
    task.step(STOP, 106.5, 106.5)
    assert entry["left"] == [{"pid": hanging.pid, "command": processes.command(hanging.pid)}]
    assert reasons == [True]
    assert task.due(106.5) == 106.5 + LOOK_S
    assert entry["state"] == "running"
