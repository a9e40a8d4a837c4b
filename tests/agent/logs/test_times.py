"""When lines were written, by the samples of the log's size."""

from __future__ import annotations

import os
import time

import pytest

from tests.agent.logs.run import Run, text


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
