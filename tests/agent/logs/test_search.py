"""Lines that are searched for: the lines around them, the last ones of all attempts, and patterns that never end."""

from __future__ import annotations

import itertools
import os
import time

import pytest

from dtctl.agent.host.errors import Refused
from dtctl.agent.logs import finding
from tests.agent.logs.run import LINES, Run, text
from tests.waiting import eventually

ENDLESS = r"(x+x+)+y"


def numbers(run: Run, **request: object) -> list[int]:
    return [int(line.split()[1]) for line in text(run.serve(**request)).splitlines()]


@pytest.mark.parametrize("grep", ["line 500", "^line 500$", "line 5(?=00)00$|^line 500$"])
def test_lines_around_a_match_come_with_it(run: Run, grep: str) -> None:
    run.log(b"".join(LINES.splitlines(keepends=True)[:1001]))
    assert numbers(run, grep=grep, context=2) == [498, 499, 500, 501, 502]


def test_matches_that_are_close_share_the_lines_between_them(run: Run) -> None:
    run.log(LINES)
    assert numbers(run, grep="^line (10|13|20)$", context=2) == [*range(8, 16), *range(18, 23)]
    frames = run.serve(grep="^line (10|13|20)$", context=2)
    assert [frame["offset"] == before["end"] for before, frame in itertools.pairwise(frames)] == [False]


def test_context_reaches_over_the_pieces_that_a_log_is_read_in(run: Run) -> None:
    run.log(b"x" * 262_000 + b"\nbefore\n" + b"y" * 400 + b" here\nafter\n" + b"z" * 300_000 + b"\n")
    assert text(run.serve(grep="here", context=1)) == b"before\n" + b"y" * 400 + b" here\nafter\n"


def test_the_last_matches_come_with_what_is_around_them_and_with_no_other_match(run: Run) -> None:
    run.log(LINES)
    assert numbers(run, grep="00$", lines=2, context=1) == [99_799, 99_800, 99_801, 99_899, 99_900, 99_901]
    assert numbers(run, grep="1$", lines=1, context=11) == list(range(99_980, 100_000))


def test_context_comes_while_it_is_written(run: Run) -> None:
    run.log(b"one\n")
    with run.follow(grep="found", context=1) as following:
        run.log(b"two\nfound\n")
        eventually(lambda: following.text() == b"two\nfound\n")
        run.log(b"three\nfour\n")
        eventually(lambda: following.text() == b"two\nfound\nthree\n")


def test_what_is_resumed_comes_with_its_context_and_nothing_twice(run: Run) -> None:
    run.log(b"one\nfound\ntwo\nthree\n")
    assert text(run.serve(grep="found", context=2, resume={"worker:0": [1, 10]})) == b"two\nthree\n"


def test_the_last_lines_of_all_attempts(run: Run) -> None:
    for number in (1, 2, 3):
        run.log(b"".join(b"attempt %d line %d\n" % (number, line) for line in range(10)), number)
        run.exit(number)
    assert len(text(run.serve(all_attempts=True)).splitlines()) == 30
    last = text(run.serve(all_attempts=True, lines=12)).splitlines()
    assert last == [b"attempt 2 line 8", b"attempt 2 line 9", *(b"attempt 3 line %d" % line for line in range(10))]
    found = text(run.serve(all_attempts=True, lines=2, grep="line 7")).splitlines()
    assert found == [b"attempt 2 line 7", b"attempt 3 line 7"]
    assert text(run.serve(all_attempts=True, lines=0)) == b""


def test_tasks_of_a_host_come_in_the_order_of_their_time(run: Run) -> None:
    run.states = {"worker:0": "running", "ps:0": "running"}
    for task, times in (("worker:0", (100.0, 102.0)), ("ps:0", (101.0, 103.0))):
        run.log(b"first\nsecond\n", task=task)
        (run.attempt(1, task) / "times").write_text("{} 6\n{} 13\n".format(*times))
    frames = [(frame["task"], frame.payload) for frame in run.serve(tasks=None)]
    assert frames == [("worker:0", b"first\n"), ("ps:0", b"first\n"), ("worker:0", b"second\n"), ("ps:0", b"second\n")]


def test_until_a_moment(run: Run) -> None:
    run.log(b"one\ntwo\nthree\n")
    (run.attempt(1) / "times").write_text("100.0 4\n200.0 8\n300.0 14\n")
    assert text(run.serve(until=150.0)) == b"one\n"
    assert text(run.serve(until=199.5)) == b"one\ntwo\n", "the supervisor looks once a second"
    assert text(run.serve(until=250.0, since=150.0)) == b"two\n"
    assert text(run.serve(until=250.0, lines=1)) == b"two\n"
    assert text(run.serve(until=50.0)) == b""
    assert text(run.serve(until=time.time() + 10)) == b"one\ntwo\nthree\n"


def test_until_a_moment_at_which_an_earlier_attempt_ran(run: Run) -> None:
    for number, began in ((1, 100.0), (2, 200.0)):
        log = run.log(b"attempt %d\n" % number, number)
        (log.parent / "times").write_text("%.1f 10\n" % (began + 10))
        start = log.parent / "start.json"
        start.write_text("{}")
        os.utime(start, (began, began))
    assert text(run.serve(until=150.0)) == b"attempt 1\n"
    assert text(run.serve(until=250.0)) == b"attempt 2\n"
    assert text(run.serve(until=250.0, all_attempts=True)) == b"attempt 1\nattempt 2\n"


def test_a_pattern_that_takes_for_ever_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "SEARCH_CPU_S", 0.2)
    run.log(b"x" * 5000 + b"\n")
    with pytest.raises(Refused, match="takes too long") as refused:
        run.serve(grep=ENDLESS)
    assert "loss|accuracy" in refused.value.hint


def test_a_pattern_that_takes_all_memory_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_MOST_MEMORY_BYTES", 1 << 20)
    run.log(b"ab" * 1_500_000 + b"\n")
    with pytest.raises(Refused, match="more memory than there is"):
        run.serve(grep="(?:a|b(?=a|b|$))*(?:c|(?:a|b)*d)")


def test_plain_words_need_no_expression(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "Expression", None)
    run.log("loss 1\naccuracy 2\ngrößer 3\nother 4\n".encode())
    assert numbers(run, grep="loss|accuracy|größer") == [1, 2, 3]
    assert text(run.serve(grep="")) != b""


def test_forms_of_secrets_are_masked_in_logs_searches_and_context(run: Run) -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + ("MIIEpAIB" * 8 + "\n") * 3 + "-----END PRIVATE KEY-----\n"
    run.log(("Authorization: Bearer abc\n" + key + "Error: DB_PASS=hunter2\nlast\n").encode())
    for shown in (run.serve(), run.serve(grep="Error|abc|MIIE", context=9), run.serve(grep="Err.r", context=9)):
        assert not [secret for secret in (b"abc", b"MIIE", b"hunter2") if secret in text(shown)]
        assert b"Error: DB_PASS=***\nlast\n" in text(shown)
    assert text(run.serve(grep="hunter2")) == text(run.serve(grep="MIIE")) == b""


def sampled(run: Run, samples: list[tuple[float, bytes]], last_write: float) -> None:
    """A log that grew by these pieces, each seen at its time."""
    size = 0
    times = run.attempt(1) / "times"
    for when, data in samples:
        log = run.log(data)
        size += len(data)
        if when:
            with times.open("a") as file:
                file.write(f"{when:.3f} {size}\n")
    os.utime(log, (last_write, last_write))


def test_lines_have_the_time_of_the_sample_that_first_saw_their_end(run: Run) -> None:
    sampled(run, [(100, b"a\nb\nc"), (101, b"c\nd\n"), (102, b"e\n"), (0, b"f\ng\n")], last_write=103)
    dated = [(message["time"], message.payload) for message in run.serve()]
    assert dated == [(100, b"a\nb\n"), (101, b"cc\nd\n"), (102, b"e\n"), (103, b"f\ng\n")]
    dated = [(message["time"], message.payload) for message in run.serve(lines=4)]
    assert dated == [(101, b"d\n"), (102, b"e\n"), (103, b"f\ng\n")]


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (99, b"a\nb\ncc\nd\ne\nf\ng\n"),
        (100.5, b"cc\nd\ne\nf\ng\n"),
        (101.5, b"e\nf\ng\n"),
        (102.5, b"f\ng\n"),
        (103.5, b""),
    ],
)
def test_since_is_found_by_the_samples(run: Run, since: float, expected: bytes) -> None:
    sampled(run, [(100, b"a\nb\nc"), (101, b"c\nd\n"), (102, b"e\n"), (0, b"f\ng\n")], last_write=103)
    assert text(run.serve(since=since)) == expected
    assert text(run.serve(since=since, lines=1)) == (b"g\n" if expected else b"")


def test_since_reaches_back_into_earlier_attempts(run: Run) -> None:
    now = time.time()
    for number, age in ((1, 7200), (2, 1800), (3, 60)):
        log = run.log(b"attempt %d\n" % number, number)
        os.utime(log, (now - age, now - age))
        run.exit(number)
    assert text(run.serve(since=now - 3600)) == b"attempt 2\nattempt 3\n"
    assert text(run.serve(since=now - 10)) == b""


def test_samples_from_before_a_truncation_do_not_count(run: Run) -> None:
    sampled(run, [(0, b"a\nb\n")], last_write=203)
    (run.attempt(1) / "times").write_text("100.0 500\n101.0 900\n200.0 2\n")
    assert [(message["time"], message.payload) for message in run.serve()] == [(200, b"a\n"), (203, b"b\n")]
    assert text(run.serve(since=150)) == b"a\nb\n"


def test_samples_that_are_damaged_or_half_written_do_no_harm(run: Run) -> None:
    sampled(run, [(0, b"a\nb\n")], last_write=203)
    (run.attempt(1) / "times").write_bytes(b"100.0 2\n\xff\n\n101.0 4")
    assert text(run.serve()) == b"a\nb\n"


def test_a_million_samples_are_not_all_read_for_the_last_lines(run: Run) -> None:
    log = run.log(b"0123456\n" * 300_000)
    (run.attempt(1) / "times").write_text("".join(f"{1000 + n}.000 {8 * (n + 1)}\n" for n in range(300_000)))
    os.utime(log, (400_000, 400_000))
    before = time.process_time()
    dated = [(message["time"], message["end"] - message["offset"]) for message in run.serve(lines=3)]
    assert dated == [(300_997, 8), (300_998, 8), (300_999, 8)]
    assert time.process_time() - before < 1
