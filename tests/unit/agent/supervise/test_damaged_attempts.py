"""A trainer writes what it likes into its attempt's directory: every junk in a record's place leads to a decision."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact, read, sentence
from dtctl.agent.records.run_state import Entry, Start, State
from dtctl.agent.run.runfiles import RunFiles
from dtctl.agent.supervise import keeper
from dtctl.agent.supervise.attempt import START_LIMIT_S
from dtctl.agent.supervise.context import TaskContext
from dtctl.agent.supervise.task import Task
from tests.reasons import reason_of
from tests.unit.agent.supervise import supervised
from tests.unit.privileges import public_directory, without_privileges
from tests.unit.tasks import past_attempt

RUN = supervised.intent("run")


def text(content: str | bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


def record(**fields: object) -> Callable[[Path], object]:
    return text(json.dumps(fields))


JUNK: dict[str, Callable[[Path], object]] = {
    "empty": text(""),
    "cut off": text('{"started": 1.0, "pid'),
    "no object": text("[]"),
    "nothing": text("null"),
    "no text": text(b"\xff\xfe\x00"),
    "too deep": text("[" * 100_000),
    "a long number": text('{"started": 1, "ended": %s}' % ("9" * 100_000)),
    "no number": text('{"started": NaN, "ended": Infinity}'),
    "a directory": lambda path: path.mkdir(),
    "a full directory": lambda path: (path / "x").mkdir(parents=True),
    "a link in a circle": lambda path: path.symlink_to(path.name),
}
STARTS = {
    "pid 0": record(started=1.0, pid=0, start_time=1, boot_id="b"),
    "pid -1": record(started=1.0, pid=-1, start_time=1, boot_id="b"),
    "a pid of 64 bits": record(started=1.0, pid=2**63, start_time=1, boot_id="b"),
    "a pid in words": record(started=1.0, pid="1; reboot"),
    "no start": record(pid=1),
    "a key that no environment holds": text('{"started": 1.0, "key": "\\ud800"}'),
    "a keeper of nothing": record(started=1.0, pid=1, start_time=1, boot_id="b", keeper={}),
}
EXITS = {
    "code 999": record(code=999),
    "a negative code": record(code=-1),
    "signal 0": record(signal=0),
    "a code in words": record(code="0"),
    "a long reason": record(fault="unknown", why=[{"kind": "said", "text": "x" * 100_000}]),
    "an end after the last": record(code=0, ended=1e300),
}


class Adopted:
    """A task whose newest attempt was started before this supervisor was."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.attempt = directory / "tasks" / "worker-0" / "attempt-1"
        self.attempt.mkdir(parents=True)
        self.spec = supervised.spec(supervised.task("worker:0"))
        self.entry = made(Entry, state="running", attempt=1, pid=7, start_time=1, since=1.0)

    def begin(self, now: float = 100.0) -> Task:
        around = TaskContext(
            RunFiles(str(self.directory)), self.spec, {"PATH": "/bin"}, {}, lambda *_, **__: None, lambda _: None
        )
        return Task(self.spec["tasks"][0], self.entry, around, now, 1000.0)

    def decided(self, task: Task, now: float = 100.0) -> Entry:
        for second in range(30):
            task.step(RUN, now + second, 1000.0 + second)
            if task.entry["state"] == "backoff":
                break
        made(State, run="r", host="h1", tasks={"worker:0": task.entry})
        return task.entry

    def started(self, **fields: object) -> None:
        """By a keeper of which nothing is left, nor of the trainer."""
        gone: dict[str, object] = {"pid": 2**22, "start_time": 1, "boot_id": processes.boot_id(), "started": 1.0}
        paths.write_json(str(self.attempt / "start.json"), made(Start, **{**gone, **fields}))


@pytest.fixture
def adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adopted:
    monkeypatch.setattr(keeper, "launch", lambda _: None)
    return Adopted(tmp_path)


@pytest.mark.parametrize("junk", [*JUNK.values(), *STARTS.values()], ids=[*JUNK, *STARTS])
def test_an_invalid_start_record_ends_the_attempt(adopted: Adopted, junk: Callable[[Path], object]) -> None:
    junk(adopted.attempt / "start.json")
    entry = adopted.decided(adopted.begin())
    assert entry["state"] == "backoff"
    assert reason_of(entry).startswith(f"exit status unknown ({adopted.attempt}/start.json is damaged: ")
    assert (entry["restarts"], len(entry["history"])) == (1, 1)


@pytest.mark.parametrize("junk", [*JUNK.values(), *EXITS.values()], ids=[*JUNK, *EXITS])
def test_an_invalid_exit_record_is_an_unknown_exit(adopted: Adopted, junk: Callable[[Path], object]) -> None:
    adopted.started()
    junk(adopted.attempt / "exit.json")
    entry = adopted.decided(adopted.begin())
    assert entry["state"] == "backoff"
    assert reason_of(entry).startswith(f"exit status unknown ({adopted.attempt}/exit.json is damaged: ")
    assert entry["exit"] is not None
    assert (entry["exit"]["code"], entry["exit"]["signal"]) == (None, None)


@pytest.mark.parametrize("junk", [JUNK["cut off"], lambda path: None], ids=["cut off", "none"])
def test_while_the_keeper_lives_it_may_still_write_a_better_exit(
    adopted: Adopted, junk: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    me = processes.myself()
    monkeypatch.setattr(processes, "below", lambda _: {})  # this process stands for the keeper, not for its children's
    adopted.started(keeper={"pid": me["pid"], "start_time": me["start_time"]})
    junk(adopted.attempt / "exit.json")
    task = adopted.begin()
    assert adopted.decided(task)["state"] == "running"
    assert task.entry["pid"] is None
    assert reason_of(task.entry) == sentence([fact("exit_unwritten", host="h1")])
    paths.write_json(str(adopted.attempt / "exit.json"), supervised.code(7))
    assert reason_of(adopted.decided(task)) == "exit code 7"


def test_a_valid_exit_counts_despite_an_invalid_start(adopted: Adopted) -> None:
    JUNK["empty"](adopted.attempt / "start.json")
    paths.write_json(str(adopted.attempt / "exit.json"), supervised.code(7))
    assert reason_of(adopted.decided(adopted.begin())) == "exit code 7"


def test_a_removed_attempt_directory_is_given_up(adopted: Adopted) -> None:
    task = adopted.begin()
    adopted.attempt.rmdir()
    assert adopted.decided(task)["state"] == "backoff"
    assert START_LIMIT_S < 30


@pytest.mark.parametrize(
    "name", ["attempt-²", "attempt-٣", "attempt-" + "9" * 30, "attempt-", "attempt-x", "attempt--1"]
)
def test_only_attempt_directories_count_as_attempts(adopted: Adopted, name: str) -> None:
    (adopted.attempt.parent / name).mkdir()
    adopted.started()
    assert adopted.begin().entry["attempt"] == 1


def test_a_file_instead_of_an_attempt_directory_is_an_unknown_exit(adopted: Adopted) -> None:
    (adopted.attempt.parent / "attempt-2").touch()
    task = adopted.begin()
    entry = adopted.decided(task)
    assert (entry["state"], entry["attempt"]) == ("backoff", 2)
    assert "Not a directory" in reason_of(entry)
    task.step(RUN, 500.0, 1500.0)
    assert (entry["state"], entry["attempt"]) == ("starting", 3)


def test_a_file_in_the_place_of_a_tasks_directory_uses_its_budget_up(adopted: Adopted) -> None:
    adopted.attempt.rmdir()
    adopted.attempt.parent.rmdir()
    adopted.attempt.parent.touch()
    entry = adopted.decided(adopted.begin())
    assert (entry["state"], entry["restarts"]) == ("backoff", 1)
    assert "Not a directory" in reason_of(entry)


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_keeper_writes_the_exit_whatever_stands_in_its_place(tmp_path: Path, junk: Callable[[Path], object]) -> None:
    junk(tmp_path / "exit.json")
    launch = keeper.AttemptSpec(RunFiles(str(tmp_path)), str(tmp_path), ["x"], {}, "/")
    keeper._record_exit(launch, 7 << 8, None)
    assert json.loads((tmp_path / "exit.json").read_text())["code"] == 7


@pytest.mark.timeout(120)
def test_a_keeper_ends_where_nothing_can_be_written() -> None:
    with public_directory() as attempt:
        attempt.chmod(0o555)
        launch = keeper.AttemptSpec(RunFiles(str(attempt)), str(attempt), ["x"], {}, "/")
        with without_privileges():
            keeper._record_exit(launch, 7 << 8, None)
        assert not list(attempt.iterdir())


def test_start_fault_survives_encoding_up_to_the_length_limit() -> None:
    for text_, final in (("cannot run x: No such file", True), ("", False), ("\udcff\ud800" * 9000, True)):
        fault = keeper.Fault.decode(keeper.Fault([fact("said", text=text_)], final).encode())
        assert fault is not None
        assert fault.final is final
        assert len(read(fault.why[0])["text"]) <= 4096
    assert keeper.Fault.decode(b"") is None


def test_keeper_goes_on_where_python_has_no_ctypes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    with pytest.raises(ImportError):
        importlib.import_module("ctypes")
    keeper._adopt_orphans(True)


GIVEN_UP = supervised.intent(
    "stop", version=2, grace_s=0.0, ends_as={"outcome": "Failed", "cause": "worker:0", "start": "failed"}
)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_exit_of_a_failed_attempt_is_kept_after_an_agent_restart(adopted: Adopted, is_recorded: bool) -> None:
    failed = past_attempt(1, 1.0, 2.0, 3, None, asked=False, cause="ValueError: no data")
    adopted.entry.update({"attempt": 2, "history": [failed]})
    if is_recorded:
        paths.write_json(str(adopted.attempt / "exit.json"), supervised.code(3))
        (adopted.attempt / "log").write_text("ValueError: no data\n")
    adopted.attempt = adopted.attempt.with_name("attempt-2")
    adopted.attempt.mkdir()
    adopted.started()
    task = adopted.begin()
    task.expect_end()
    paths.write_json(str(adopted.attempt / "exit.json"), supervised.killed(9))
    for second in range(30):
        task.step(GIVEN_UP, 100.0 + second, 1000.0 + second)
    entry = task.entry
    assert (entry["state"], entry["attempt"], entry["failed_attempt"]) == ("failed", 2, 1)
    assert entry["exit"] is not None
    assert (entry["exit"]["code"], entry["exit"]["signal"]) == (3, None)
    assert entry["exit"]["tail"] == ("ValueError: no data" if is_recorded else "")
