"""The moments at which a connection needs a beat, is given up, and is tried again, to the second."""

from __future__ import annotations

import pytest

from dtctl.agent.link.stream import BEAT_S, RETRY_LAST_S, SILENCE_S, SLACK_S, SOON_FOR_S, Keepalive, Retry


def retry(random: float = 1.0) -> Retry:
    return Retry(lambda: random)


def test_a_beat_is_wanted_half_a_second_before_it_is_due() -> None:
    keepalive = Keepalive(100.0)
    assert not keepalive.wants_beat(100.0 + BEAT_S - SLACK_S - 0.01)
    assert keepalive.wants_beat(100.0 + BEAT_S - SLACK_S)
    keepalive.said(102.0)
    assert not keepalive.wants_beat(100.0 + BEAT_S)


def test_a_silent_connection_is_lost_at_the_limit_and_not_before() -> None:
    keepalive = Keepalive(100.0)
    keepalive.heard(101.0)
    assert keepalive.last_heard == 101.0
    assert not keepalive.is_lost(101.0 + SILENCE_S - 0.01)
    assert keepalive.is_lost(101.0 + SILENCE_S)


def test_due_is_the_sooner_of_the_next_beat_and_the_end_of_patience() -> None:
    keepalive = Keepalive(100.0)
    assert keepalive.due() == 100.0 + BEAT_S
    keepalive.said(109.0)
    assert keepalive.due() == 100.0 + SILENCE_S


@pytest.mark.parametrize(("random", "delays"), [(1.0, [0.125, 0.25, 0.5, 1, 2]), (0.0, [0.0625, 0.125, 0.25, 0.5, 1])])
def test_delays_double_up_to_three_seconds_in_the_first_minute(random: float, delays: list[float]) -> None:
    made = retry(random)
    assert [made.next_s(100.0 + number) for number in range(5)] == delays


def test_after_a_minute_delays_double_up_to_fifteen_seconds() -> None:
    made = retry()
    for _ in range(10):
        made.next_s(100.0)
    assert made.next_s(100.0 + SOON_FOR_S - 0.1) == 3
    assert [made.next_s(100.0 + SOON_FOR_S) for _ in range(4)] == [6, 12, RETRY_LAST_S, RETRY_LAST_S]


def test_a_success_begins_the_delays_and_the_minute_anew() -> None:
    made = retry()
    for _ in range(10):
        made.next_s(100.0)
    made.reset()
    assert [made.next_s(1000.0) for _ in range(7)] == [0.125, 0.25, 0.5, 1, 2, 3, 3]
