"""Logs that their trainer has replaced, blown up or cut off: bounded work, and a word of what stands there."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import files
from dtctl.agent.logs.lines import LINE_LIMIT
from tests import impostors
from tests.agent.logs.run import Run, text
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)


def replaced(run: Run, what: str) -> Path:
    log = run.log(b"")
    log.unlink()
    impostors.NO_FILES[what](log)
    return log


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_what_is_no_log_is_named_in_its_place(run: Run, what: str) -> None:
    log = replaced(run, what)
    message = f"dtctl: the log of attempt 1 cannot be read: it {impostors.said(what)}\n".encode()
    assert text(run.serve()) == message
    assert text(run.serve(lines=5, since=0.0)) == message
    assert impostors.unharmed(log)


def test_the_logs_of_the_other_tasks_continue_and_what_is_no_log_is_reported_once(run: Run) -> None:
    run.states = {"worker:0": "running", "ps:0": "running"}
    log = replaced(run, "is a FIFO")
    run.log(b"parameters\n", task="ps:0")
    with run.follow(tasks=None) as following:
        eventually(lambda: b"parameters\n" in following.text())
        time.sleep(0.6)
        log.unlink()
        run.log(b"a log again\n")
        eventually(lambda: b"a log again\n" in following.text())
        for task in run.states:
            run.end(task)
        eventually(following.ended)
    assert following.text().count(b"is a FIFO") == 1


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize("grep", [None, "never"])
def test_the_last_lines_of_a_terabyte_of_nothing_are_a_few_megabytes(run: Run, over: bool, grep: str | None) -> None:
    log = run.log(b"first\n")
    os.truncate(log, impostors.TERABYTE)
    if over:
        run.exit()
    before = time.process_time()
    found = run.serve(lines=5, grep=grep)
    assert time.process_time() - before < 5
    assert len(text(found)) <= 2 * LINE_LIMIT + 128 * 1024
    if grep is None and over:
        assert found[-1]["end"] == impostors.TERABYTE


def test_the_last_part_of_a_line_that_never_ends_comes_and_the_lines_after_it(run: Run) -> None:
    run.log(b"first\n" + b"x" * (LINE_LIMIT + 1_000_000) + b"\nlast\n")
    assert text(run.serve(lines=1)) == b"last\n"
    tail = text(run.serve(lines=5))
    assert tail.endswith(b"xx\nlast\n")
    assert set(tail[:-6]) == {ord("x")}
    assert LINE_LIMIT <= len(tail) < LINE_LIMIT + 300_000


def test_no_secret_is_cut_where_such_a_line_begins(run: Run) -> None:
    secret = b"correct-horse-battery"
    (run.directory / "tasks").mkdir(parents=True)
    (run.directory / "secrets.json").write_text(json.dumps({"KEY": secret.decode()}))
    run.log(secret * (LINE_LIMIT // len(secret) + 10_000))
    run.exit()
    assert set(text(run.serve(lines=1))) == {ord("*")}


def test_samples_of_a_terabyte_are_not_all_read(run: Run) -> None:
    run.log(b"a\nb\n")
    impostors.sparse(run.attempt(1) / "times")
    before = time.process_time()
    assert text(run.serve(since=0.0)) == b"a\nb\n"
    assert time.process_time() - before < 2


def test_a_log_that_may_not_be_read_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = files.descriptor

    def refuses(path: str, *arguments: Any, **named: Any) -> int:
        if path.endswith("log"):
            raise PermissionError(13, "Permission denied", path)
        return descriptor(path, *arguments, **named)

    run.log(b"x\n")
    monkeypatch.setattr(files, "descriptor", refuses)
    assert text(run.serve()) == b"dtctl: the log of attempt 1 cannot be read: Permission denied\n"
