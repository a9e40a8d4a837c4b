"""Lines by which trainers that live tell what they wait for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.supervise.progress import MARKS, complaint_after, last_complaint
from tests.fuzz import cases

STILL = (
    b"2026-11-22 10:02:11.123456: I tensorflow/core/distributed_runtime/master.cc:278] "
    b"CreateSession still waiting for response from worker: /job:ps/replica:0/task:1\n"
)


def test_the_last_one_is_found_and_what_follows_it() -> None:
    data = b"step 1\n" + STILL.replace(b"task:1", b"task:0") + STILL + b"step 2\n"
    line, after = last_complaint(data)
    assert line == STILL.strip()
    assert after == b"\nstep 2\n"


def test_a_log_without_any_tells_none() -> None:
    assert last_complaint(b"step 1 loss 0.5\nWARNING: slow\n") == (b"", b"")


def test_when_and_where_it_was_written_is_left_out() -> None:
    for head in (b"INFO:tensorflow:", b"E1122 10:02:11.123456    99 chan.cc:12] "):
        told = complaint_after(None, head + b"Waiting for model to be ready. Ready_for_local_init_op: x", 5.0)
        assert told is not None
        assert told["text"].startswith("Waiting for model to be ready")
    told = complaint_after(None, STILL.strip(), 5.0)
    assert told is not None
    assert told["text"] == "CreateSession still waiting for response from worker: /job:ps/replica:0/task:1"


def test_one_kind_goes_on_whatever_numbers_are_in_it() -> None:
    first = complaint_after(None, STILL.strip(), 5.0)
    later = complaint_after(first, STILL.replace(b"task:1", b"task:2").strip(), 15.0)
    assert later is not None
    assert (later["since"], later["last"], later["text"][-1]) == (5.0, 15.0, "2")
    other = complaint_after(later, b"Connection refused", 20.0)
    assert other is not None
    assert other["since"] == 20.0
    assert complaint_after(other, b"", 30.0) is other
    again = complaint_after(other, b"Connection refused", 9000.0)
    assert again is not None
    assert again["since"] == 9000.0


@cases
@given(st.binary(max_size=300), st.sampled_from(MARKS), st.binary(max_size=300))
def test_whatever_stands_around_it_the_line_has_the_mark(before: bytes, mark: bytes, after: bytes) -> None:
    line, rest = last_complaint(before + mark + after)
    assert any(one in line for one in MARKS)
    assert b"\n" not in line
    told = complaint_after(None, line, 1.0)
    assert told is not None
    assert len(told["text"]) <= 400
    assert (before + mark + after).endswith(rest)
