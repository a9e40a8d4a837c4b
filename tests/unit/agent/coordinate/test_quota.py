"""How much a host may tell of the past: a burst, then a slow refill, and a word about what was left out."""

from __future__ import annotations

from dtctl.agent.coordinate.history import BURST_BYTES, REFILL_BYTES_S, TELL_S, Quota


def test_a_whole_burst_fits_and_nothing_after_it() -> None:
    quota = Quota(100.0)
    assert quota.takes(BURST_BYTES, 100.0)
    assert not quota.takes(1, 100.0)


def test_what_does_not_fit_leaves_the_room_as_it_was() -> None:
    quota = Quota(100.0)
    assert not quota.takes(BURST_BYTES + 1, 100.0)
    assert quota.takes(BURST_BYTES, 100.0)


def test_room_comes_back_with_time_each_second_once() -> None:
    quota = Quota(100.0)
    quota.takes(BURST_BYTES, 100.0)
    assert not quota.takes(int(2 * REFILL_BYTES_S) + 1, 102.0)
    assert quota.takes(int(2 * REFILL_BYTES_S), 102.0)
    assert not quota.takes(1, 102.0)


def test_a_long_rest_makes_no_more_room_than_a_burst() -> None:
    quota = Quota(100.0)
    assert quota.takes(BURST_BYTES - 1, 100.0)
    assert not quota.takes(BURST_BYTES + 1, 1e9)


def test_what_was_left_out_is_told_at_once_and_then_once_a_minute() -> None:
    quota = Quota(100.0)
    assert quota.left_out(1000.0) == 0
    for _ in range(3):
        quota.takes(BURST_BYTES + 1, 100.0)
    assert quota.left_out(99.0) == 0
    assert quota.left_out(100.0) == 3
    assert quota.left_out(100.0 + TELL_S) == 0
    quota.takes(BURST_BYTES + 1, 101.0)
    assert quota.left_out(100.0 + TELL_S - 0.01) == 0
    assert quota.left_out(100.0 + TELL_S) == 1
