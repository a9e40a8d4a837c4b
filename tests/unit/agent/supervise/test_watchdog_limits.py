"""The watchdog's limits to the second: what is just a sign of progress, and what is not any more."""

from __future__ import annotations

import pytest

from dtctl.agent.run.hangs import GAPS, LEAST_LEARNT_S, PAUSE_S, Signs, Watchdog
from tests.unit.agent.supervise.test_watchdog import Watched


def proven(stall_s: float | None = 20.0, longest_gap_s: float = 0.0) -> Watchdog:
    """It has told steps before; its last sign was at 1000."""
    return Watchdog(stall_s, longest_gap_s, trains=True, proven=True, now=1000.0)


def silent(dog: Watchdog, *moments: float) -> list[bool]:
    """At which of the moments it is taken for hung."""
    return [dog.look(now, Signs(ready=True)) is not None for now in moments]


def test_looks_that_are_ten_seconds_apart_are_no_pause() -> None:
    assert silent(proven(), 1000 + PAUSE_S, 1000 + 2 * PAUSE_S) == [False, True]
    assert silent(proven(), 1000 + PAUSE_S, 1000.1 + 2 * PAUSE_S, 1000 + 3 * PAUSE_S) == [False, False, False]


def test_after_a_pause_the_silence_and_what_was_regular_begin_anew() -> None:
    watched = Watched(20)
    watched.seconds(15, grows_every=5)
    watched.now += 11
    watched.seconds(10, grows_every=5)
    assert watched.seconds(100) is None, "ten seconds after the pause are not regular for as long as the limit"


def test_two_steps_prove_nothing_and_three_do() -> None:
    watched = Watched(20)
    watched.seconds(10, steps_every=5)
    assert watched.seconds(3600) is None
    watched = Watched(20)
    watched.seconds(15, steps_every=5)
    assert watched.seconds(20) is not None


def test_a_log_that_has_grown_for_just_as_long_as_the_limit_proves_progress() -> None:
    watched = Watched(20)
    watched.seconds(20, grows_every=10)
    assert watched.seconds(20) is not None
    watched = Watched(20)
    watched.seconds(18, grows_every=6)
    assert watched.seconds(3600) is None


def test_a_gap_as_long_as_the_limit_is_regular_and_a_longer_one_is_not() -> None:
    watched = Watched(20)
    watched.seconds(20, grows_every=20)
    assert watched.seconds(20) is not None
    watched = Watched(20)
    watched.seconds(21, grows_every=21)
    assert watched.seconds(3600) is None


@pytest.mark.parametrize("state", [{"excused": True}, {"ready": False}])
def test_what_was_regular_begins_anew_after_an_excuse(state: dict[str, bool]) -> None:
    watched = Watched(20)
    watched.seconds(15, grows_every=5)
    watched.seconds(1, **state)
    watched.seconds(10, grows_every=5)
    assert watched.seconds(3600) is None


def test_a_gap_as_long_as_the_limit_is_learnt_whatever_ends_it() -> None:
    watched = Watched()
    watched.seconds(1, grows_every=1)
    watched.seconds(300, grows_every=300)
    assert watched.dog.longest_gap_s == 300


def test_a_longer_gap_is_learnt_only_between_two_steps() -> None:
    watched = Watched()
    watched.seconds(1, grows_every=1)
    watched.seconds(301, grows_every=301)
    assert watched.dog.longest_gap_s == 0, "who only prints may have waited for others"
    watched.seconds(301, steps_every=301)
    assert watched.dog.longest_gap_s == 0, "it has told no step before"
    watched.seconds(301, steps_every=301)
    assert watched.dog.longest_gap_s == 301


def test_the_limit_is_the_users_or_ten_gaps_or_five_minutes() -> None:
    assert proven(7.0, 100.0).limit_s == 7
    assert proven(None, 100.0).limit_s == GAPS * 100
    assert proven(None, 1.0).limit_s == LEAST_LEARNT_S


def test_a_silence_is_quiet_after_a_quarter_of_the_limit() -> None:
    assert not proven(20.0).is_quiet(1005.0)
    assert proven(20.0).is_quiet(1005.1)
    assert not Watchdog(20.0, 0.0, trains=True, proven=False, now=1000.0).is_quiet(2000.0)


def test_a_frozen_task_is_put_down_at_the_limit_and_not_before() -> None:
    dog = proven(None)
    looks = [dog.look(1000.0 + second, Signs(ready=False, frozen=True)) for second in range(0, 61, 10)]
    assert [each is not None for each in looks] == [False] * 6 + [True]
    dog = proven(20.0)
    looks = [dog.look(1000.0 + second, Signs(ready=True, frozen=True)) for second in range(0, 11, 5)]
    assert [each is not None for each in looks] == [False, False, True]


def test_frozen_is_counted_anew_after_a_pause_and_after_a_look_without() -> None:
    dog = proven(20.0)
    frozen, awake = Signs(ready=True, frozen=True), Signs(ready=True, grew=True)
    moments = [(1001.0, frozen), (1006.0, frozen), (1017.0, frozen), (1026.0, frozen), (1027.0, frozen)]
    assert [dog.look(now, signs) is not None for now, signs in moments] == [False, False, False, False, True]
    dog = proven(20.0)
    moments = [(1001.0, frozen), (1006.0, awake), (1007.0, frozen), (1016.0, frozen), (1017.0, frozen)]
    assert [dog.look(now, signs) is not None for now, signs in moments] == [False, False, False, False, True]


def test_what_a_first_step_took_tells_little_only_if_it_was_excused_before_that() -> None:
    watched = Watched()
    watched.seconds(5)
    assert not watched.dog.has_waited
    watched.seconds(5, steps_every=1)
    watched.seconds(5, excused=True)
    assert not watched.dog.has_waited
    watched = Watched()
    watched.seconds(1, excused=True)
    watched.seconds(5, steps_every=1)
    assert watched.dog.has_waited
