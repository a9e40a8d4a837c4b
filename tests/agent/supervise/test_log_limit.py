"""The limit of a task's logs: what is kept, and that a trainer which writes meanwhile loses nothing and never waits."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from dtctl.agent.supervise import attempt
from dtctl.agent.supervise.attempt import KEPT_BYTES, LogLimit, cut_front
from tests.agent.logs.run import Run, text
from tests.waiting import eventually

MB = 1_000_000
LINE = b"step %09d " + b"x" * 84 + b"\n"


def can_punch(directory: Path) -> bool:
    probe = directory / "probe"
    probe.write_bytes(b"x" * 65536)
    try:
        cut_front(str(probe), 0, 4096)
    except OSError:
        return False
    return True


@pytest.fixture
def run(tmp_path: Path) -> Run:
    assert can_punch(tmp_path), "the tests run on a file system that punches holes: ext4, xfs, btrfs, tmpfs, overlay"
    return Run(tmp_path / "run")


def steps(first: int, count: int) -> bytes:
    return b"".join(LINE % number for number in range(first, first + count))


def on_disk(log: Path) -> int:
    return log.stat().st_blocks * 512


def test_a_log_that_grows_past_its_limit_loses_its_oldest_lines(run: Run) -> None:
    limit = LogLimit(10 * MB)
    size = 0
    for part in range(30):
        log = run.log(steps(part * 10_000, 10_000))
        size += 10_000 * 100
        limit.update(str(log.parent))
        assert log.stat().st_size == size, "offsets stay what they are"
        assert on_disk(log) < 12 * MB
    assert on_disk(log) > 7 * MB
    lines = text(run.serve()).splitlines(keepends=True)
    assert lines[0].startswith(b"dtctl: here ")
    assert b"logs.limit" in lines[0]
    first = int(lines[1].split()[1])
    assert b"".join(lines[1:]) == steps(first, 300_000 - first)
    assert text(run.serve(lines=3)) == steps(299_997, 3)
    assert text(run.serve(grep="step 000000000|step 000299999")) == steps(299_999, 1)


def test_the_oldest_attempts_make_room_first_and_each_keeps_its_end(run: Run) -> None:
    limit = LogLimit(10 * MB)
    logs = [run.log(steps(0, 40_000), number) for number in (1, 2, 10)]
    limit.update(str(logs[-1].parent))
    assert [on_disk(log) > 3.9 * MB for log in logs] == [False, False, True]
    assert sum(map(on_disk, logs)) < 10 * MB
    assert on_disk(logs[0]) >= KEPT_BYTES
    assert text(run.serve(attempt=1, lines=5)) == steps(39_995, 5)


def test_without_a_limit_everything_stays(run: Run) -> None:
    log = run.log(steps(0, 100_000))
    LogLimit(None).update(str(log.parent))
    assert on_disk(log) >= 100_000 * 100


def test_a_follower_continues_behind_what_was_removed(run: Run) -> None:
    log = run.log(steps(0, 50_000))
    with run.follow(lines=1) as following:
        eventually(lambda: following.text() == steps(49_999, 1))
        run.log(steps(50_000, 50_000))
        eventually(lambda: following.text().endswith(steps(99_999, 1)))
        LogLimit(5 * MB).update(str(log.parent))
        assert on_disk(log) < 5 * MB
        run.log(steps(100_000, 1))
        eventually(lambda: following.text() == steps(49_999, 50_002))


def test_a_trainer_that_writes_meanwhile_loses_nothing(run: Run) -> None:
    log = run.log(b"")
    done = threading.Event()

    def write() -> None:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        for part in range(400):
            os.write(descriptor, steps(part * 1000, 1000))
        os.close(descriptor)
        done.set()

    limit = LogLimit(10 * MB)
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        limit.update(str(log.parent))
    thread.join()
    limit.update(str(log.parent))
    assert log.stat().st_size == 400_000 * 100
    assert on_disk(log) < 13 * MB
    lines = text(run.serve()).splitlines(keepends=True)[1:]
    assert b"".join(lines) == steps(400_000 - len(lines), len(lines))


def test_what_is_no_log_is_left_alone(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 4 * MB)
    log = run.attempt(1) / "log"
    log.symlink_to(other)
    LogLimit(1 * MB).update(str(log.parent))
    assert on_disk(other) >= 4 * MB
    log.unlink()
    os.mkfifo(log)
    LogLimit(1 * MB).update(str(log.parent))


def test_a_file_system_without_holes_has_no_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(opened: int, start: int, size: int) -> None:
        asked.append(size)
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(attempt, "_punch", lambda: refuse)
    log = run.log(steps(0, 100_000))
    limit = LogLimit(5 * MB)
    limit.update(str(log.parent))
    limit.update(str(log.parent))
    assert len(asked) == 1
    assert on_disk(log) >= 100_000 * 100
