"""Which lines of a log are sent, and how."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import files
from dtctl.agent.host.errors import Refused
from dtctl.agent.logs.lines import LINE_LIMIT
from tests import impostors
from tests.agent.logs.run import LINES, Run, text
from tests.waiting import eventually


def test_a_whole_log_comes_in_order_and_with_its_offsets(run: Run) -> None:
    run.log(LINES)
    messages = run.serve()
    assert text(messages) == LINES
    position = 0
    for message in messages:
        assert message.type == "log"
        assert (message["task"], message["attempt"], message["offset"]) == ("worker:0", 1, position)
        assert message.payload.endswith(b"\n")
        position = message["end"]
    assert position == len(LINES)


@pytest.mark.parametrize("lines", [0, 1, 2, 10, 50_000, 1_000_000])
def test_the_last_lines(run: Run, lines: int) -> None:
    run.log(LINES)
    assert text(run.serve(lines=lines)).splitlines() == LINES.splitlines()[-lines:] * bool(lines)


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 262_144, 1_000_000, 3_000_001])
def test_lines_of_any_length_are_whole(run: Run, size: int) -> None:
    long = b"x" * size + b"\n"
    run.log(b"first\n" + long + b"last\n")
    assert text(run.serve()) == b"first\n" + long + b"last\n"
    assert text(run.serve(lines=2)) == long + b"last\n"
    assert long in [message.payload for message in run.serve()] or size < 262_144


def test_a_line_that_never_ends_is_cut_but_not_within_a_secret(run: Run) -> None:
    secret = "correct-horse"
    (run.attempt(1).parent.parent.parent / "secrets.json").write_text(json.dumps({"KEY": secret}))
    run.log(b"x" * (4 * 1024 * 1024 - 5) + secret.encode() + b"y" * 1000)
    with run.follow(lines=None) as following:
        eventually(lambda: len(following.text()) >= 4 * 1024 * 1024 - 5)
        run.end()
        eventually(following.ended)
    assert following.text() == b"x" * (4 * 1024 * 1024 - 5) + b"***" + b"y" * 1000


def test_bytes_that_are_no_text_are_left_alone(run: Run) -> None:
    data = bytes(range(256)) * 3 + b"\xff\xfe\n\xc3\n\0\n"
    run.log(data)
    run.exit()
    assert text(run.serve()) == data
    assert text(run.serve(lines=1)) == b"\0\n"


def test_an_unfinished_line_waits_for_its_end_or_that_of_the_attempt(run: Run) -> None:
    run.log(b"one\ntwo")
    assert text(run.serve()) == b"one\n"
    assert text(run.serve(lines=1)) == b"one\n"
    run.exit()
    assert text(run.serve()) == b"one\ntwo"
    assert text(run.serve(lines=1)) == b"two"


def test_a_progress_bar_is_sent_up_to_its_last_return(run: Run) -> None:
    run.log(b"epoch 1\n 10%\r 20%\r 3")
    assert text(run.serve()) == b"epoch 1\n 10%\r 20%\r"


def test_resuming_loses_and_doubles_nothing(run: Run) -> None:
    run.log(LINES[:5000])
    messages = run.serve(lines=20)
    run.log(LINES[5000:9000] + b"last of 1")
    run.exit(1)
    run.log(b"two\n", 2)
    run.exit(2)
    run.log(b"three\n", 3)
    last = messages[-1]
    rest = run.serve(lines=1, since=1e12, resume={"worker:0": [last["attempt"], last["end"]]})
    assert text(rest) == LINES[last["end"] : 9000] + b"last of 1two\nthree\n"
    assert text(run.serve(resume={"worker:0": [3, 6]})) == b""
    assert text(run.serve(resume={"worker:0": [9, 6]}, lines=1)).startswith(b"line 0\n")


def test_resuming_behind_the_end_of_a_shortened_log_says_so(run: Run) -> None:
    run.log(b"new\n")
    [message] = run.serve(resume={"worker:0": [1, 5000]})
    assert (message["offset"], message["truncated"], message.payload) == (0, True, b"new\n")


def test_previous_and_numbered_attempts(run: Run) -> None:
    for number in (1, 2, 3):
        run.log(b"attempt %d\n" % number, number)
    assert text(run.serve()) == b"attempt 3\n"
    assert text(run.serve(previous=True)) == b"attempt 2\n"
    assert text(run.serve(attempt=1)) == b"attempt 1\n"
    with run.follow(attempt=1) as following:
        eventually(following.ended)
    assert following.text() == b"attempt 1\n"
    with pytest.raises(Refused, match="worker:0 has no attempt 7") as refused:
        run.serve(attempt=7)
    assert refused.value.code == "bad_request"
    assert refused.value.hint == "attempts so far: 1, 2, 3"


def test_there_is_no_previous_attempt_of_the_first(run: Run) -> None:
    run.log(b"x\n")
    with pytest.raises(Refused, match="worker:0 has no previous attempt"):
        run.serve(previous=True)


def test_output_of_several_tasks_is_merged(run: Run) -> None:
    run.states = {"worker:0": "running", "ps:0": "running"}
    run.log(b"w\n")
    run.log(b"p\n", task="ps:0")
    assert text(run.serve(tasks=None)) == b"w\np\n"


def test_grep_sends_runs_of_matching_lines(run: Run) -> None:
    run.log("step 1\nloss 0.5\nloss 0.4 größer\nstep 2\nloss 0.3\n".encode())
    messages = run.serve(grep=r"^loss \d")
    assert [(m["offset"], m["end"], m.payload.decode()) for m in messages] == [
        (7, 34, "loss 0.5\nloss 0.4 größer\n"),
        (41, 50, "loss 0.3\n"),
    ]
    assert text(run.serve(grep="loss", lines=1)) == b"loss 0.3\n"
    assert text(run.serve(grep="größ.r$")) == "loss 0.4 größer\n".encode()
    assert text(run.serve(grep="nothing")) == b""


def test_a_pattern_that_is_none_is_refused(run: Run) -> None:
    with pytest.raises(Refused, match="not a regular expression"):
        run.serve(grep="(")


def test_secrets_are_masked_longest_first(run: Run) -> None:
    run.directory.mkdir()
    secrets = {"A": "key", "B": "key-and-more", "C": "", "PEM": "-----BEGIN-----\nbGluZSBvZiBhIGtleQ\n-----END-----"}
    (run.directory / "secrets.json").write_text(json.dumps(secrets))
    run.log(b"key-and-more key monkey\n\tbGluZSBvZiBhIGtleQ\n")
    [message] = run.serve()
    assert message.payload == b"*** *** mon***\n\t***\n"
    assert message["end"] == 24 + 20
    assert text(run.serve(grep="more")) == b"", "a search does not tell what is behind a mask"


def replaced(run: Run, what: str) -> Path:
    log = run.log(b"")
    log.unlink()
    impostors.NO_FILES[what](log)
    return log


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_invalid_log_is_reported_in_its_place(run: Run, what: str) -> None:
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
