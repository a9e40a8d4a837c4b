"""Logs of several hosts: merged by time with little of them in memory, and saved as files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dtctl.errors import ConnectionLost, DtctlError, TransportError, UsageError
from dtctl.model import TaskId
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.logs.reading import Merging, read_logs, save_logs
from tests.unit.coordinated import HOSTS, Agents, Script, record
from tests.unit.fakes import FakeTransport
from tests.unit.tasks import log_lines_of
from tests.waiting import PATIENCE_S

ALL = tuple(TaskId.parse(task) for task in HOSTS.values())
END: Mapping[str, Any] = {"type": "result", "run": "digits-1"}


def printed(script_of: Callable[[str], Script]) -> Agents:
    """What each host's task has printed."""
    return Agents(
        instead=lambda session, fields: script_of(HOSTS[session.host.name]) if fields["type"] == "logs" else None
    )


def log(task: str, data: bytes, time: float = 1.0, **fields: Any) -> dict[str, Any]:
    usual = {"type": "log", "task": task, "attempt": 1, "offset": 0, "end": len(data), "time": time}
    return {**usual, "payload": data, **fields}


def lines(task: str, time: float, data: bytes = b"x\n") -> LogLines:
    return log_lines_of(task, data, time=time)


def test_lines_of_all_hosts_come_in_the_order_of_their_time() -> None:
    def script_of(task: str) -> Script:
        first = list(HOSTS.values()).index(task)
        return [*(log(task, b"%d\n" % number, float(number)) for number in range(first, 4000, 4)), dict(END)]

    shown: list[LogLines] = []
    found = read_logs(record(), FakeTransport(printed(script_of)), LogRequest(ALL, lines=None), shown.append)
    assert [one.data for one in shown] == [b"%d\n" % number for number in range(4000)]
    assert sorted(found.answered) == sorted(HOSTS)


def test_lines_of_a_host_whose_clock_is_wrong_keep_their_place() -> None:
    with Merging(["a", "b"], most_bytes=10_000) as merging:
        for host, task, hour_s in (("a", "ps:0", 0.0), ("b", "ps:1", 3600.0)):
            for number in range(2):
                own = lines(task, number + hour_s, b"%d\n" % number)
                merging.add(host, own._replace(clock_s=-hour_s))
            merging.end(host)
        assert [one.data for one in merging.all()] == [b"0\n", b"0\n", b"1\n", b"1\n"]


def test_a_host_that_is_ahead_waits_for_the_others() -> None:
    passed: list[float] = []
    with Merging(["a", "b"], most_bytes=10_000) as merging:

        def ahead() -> None:
            for number in range(1000):
                merging.add("a", lines("ps:0", float(number)))
                passed.append(number)
            merging.end("a")

        def behind() -> None:
            merging.add("b", lines("ps:1", 500.5))
            going.wait(PATIENCE_S)
            merging.end("b")

        going = threading.Event()
        begun(ahead)
        begun(behind)
        merged = merging.all()
        assert next(merged).log["time"] == 0.0
        assert len(passed) < 30, "of a thousand, those that fit"
        going.set()
        times = [0.0, *(one.log["time"] for one in merged)]
    assert times == sorted([*map(float, range(1000)), 500.5])


def begun(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_host_of_which_nothing_waits_may_always_add() -> None:
    with Merging(["a", "b"], most_bytes=1) as merging:

        def late() -> None:
            merging.add("b", lines("ps:1", 1.0))
            merging.end("b")

        begun(lambda: merging.add("a", lines("ps:0", 2.0, b"x" * 1000)))
        merged = merging.all()
        begun(late)
        assert next(merged).log["time"] == 1.0
        assert next(merged).log["time"] == 2.0
        merging.end("a")
        assert list(merged) == []


def test_an_abandoned_log_reader_blocks_no_host() -> None:
    with Merging(["a"], most_bytes=1) as merging:

        def many() -> None:
            for _ in range(10):
                merging.add("a", lines("ps:0", 1.0))

        thread = begun(many)
        next(merging.all())
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_bug_in_a_thread_is_raised_where_lines_are_shown() -> None:
    with pytest.raises(ZeroDivisionError):
        read_logs(
            record(), FakeTransport(printed(Mock(side_effect=ZeroDivisionError))), LogRequest(ALL), lambda one: None
        )


def test_lines_received_before_a_host_was_lost_are_shown() -> None:
    def script_of(task: str) -> Script:
        return [log(task, b"x\n"), ConnectionLost("gone") if task == "ps:1" else dict(END)]

    shown: list[LogLines] = []
    transport = FakeTransport(printed(script_of), {"a": TransportError("no route to a")})
    found = read_logs(record(), transport, LogRequest(ALL), shown.append)
    assert sorted(one.log["task"] for one in shown) == ["ps:1", "worker:0", "worker:1"]
    assert set(found.errors) == {"a", "b"}
    assert sorted(found.answered) == ["c", "d"]


def test_each_attempt_is_saved_in_its_own_private_file(tmp_path: Path) -> None:
    def script_of(task: str) -> Script:
        return [log(task, b"one\n"), log(task, b"two\n"), log(task, b"again\n", attempt=2), dict(END)]

    directory = tmp_path / "new" / "logs"
    found = save_logs(record(), FakeTransport(printed(script_of)), LogRequest(ALL, lines=None), directory)
    names = sorted(path.name for path in directory.iterdir())
    assert names == sorted(f"{task.replace(':', '-')}.attempt-{n}.log" for task in HOSTS.values() for n in (1, 2))
    assert (directory / "worker-1.attempt-1.log").read_bytes() == b"one\ntwo\n"
    assert (directory / "worker-1.attempt-2.log").read_bytes() == b"again\n"
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [(one.task, one.attempt, one.size_bytes) for one in found.files[:2]] == [("ps:0", 1, 8), ("ps:0", 2, 6)]


@pytest.mark.parametrize(
    "last",
    [
        ConnectionLost("gone"),
        log("ps:0", b"another's\n"),
        {"type": "result", "run": "another"},
        log("worker:1", b"late\n", attempt=1),
    ],
    ids=["lost", "another task", "another run", "an earlier attempt"],
)
def test_incomplete_logs_of_a_host_are_not_saved(tmp_path: Path, last: Any) -> None:
    def script_of(task: str) -> Script:
        own: Script = [log(task, b"one\n"), log(task, b"two\n", attempt=2)]
        return [*own, last if task == "worker:1" else dict(END)]

    found = save_logs(record(), FakeTransport(printed(script_of)), LogRequest(ALL, lines=None), tmp_path)
    assert list(found.errors) == ["d"]
    assert len(list(tmp_path.iterdir())) == 6
    assert not list(tmp_path.glob("*worker-1*"))
    assert not list(tmp_path.glob(".*"))


def test_an_interrupted_save_leaves_no_half_file(tmp_path: Path) -> None:
    def script_of(task: str) -> Script:
        if task == "worker:1":
            raise KeyboardInterrupt
        return [log(task, b"one\n"), dict(END)]

    with pytest.raises(KeyboardInterrupt):
        save_logs(record(), FakeTransport(printed(script_of)), LogRequest(ALL, lines=None), tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_directory_that_holds_something_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UsageError, match="is not empty: precious"):
        save_logs(record(), FakeTransport(printed(lambda task: [dict(END)])), LogRequest(ALL), tmp_path)
    with pytest.raises(UsageError, match="cannot be saved in"):
        save_logs(record(), FakeTransport(printed(lambda task: [dict(END)])), LogRequest(ALL), tmp_path / "precious")


def test_a_full_disk_is_reported_and_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(os, "fdopen", lambda opened, mode: Full())
    transport = FakeTransport(printed(lambda task: [log(task, b"x\n"), dict(END)]))
    found = save_logs(record(), transport, LogRequest(ALL), tmp_path)
    assert all(isinstance(error, DtctlError) for error in found.errors.values())
    assert "No space left on device" in found.errors["a"].summary
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("wanted", "most"), [
    (LogRequest(ALL, lines=None), None),
    (LogRequest(ALL, lines=5, since=1.0), None),
    (LogRequest(ALL, lines=5), 1010),
    (LogRequest(ALL, lines=5, grep="x", context=10), 1210),
])  # fmt: skip
def test_a_host_may_send_requested_lines_and_their_context(wanted: LogRequest, most: int | None) -> None:
    assert wanted.most_lines() == most
