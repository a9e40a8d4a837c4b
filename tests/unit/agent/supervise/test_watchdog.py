"""When a task is taken for hung: recorded signs on a clock that the test turns."""

from __future__ import annotations

from dtctl.agent.records.reasons import Fact, fact
from dtctl.agent.run.hangs import Signs, Watchdog


class Watched:
    """A watchdog that is asked every second, as the supervisor does."""

    def __init__(
        self, stall_s: float | None = None, *, trains: bool = True, proven: bool = False, first_s: float | None = None
    ) -> None:
        self.now = 1000.0
        self.dog = Watchdog(stall_s, 0.0, trains, proven, self.now, first_s)

    def seconds(
        self,
        seconds: int,
        *,
        ready: bool = True,
        frozen: bool = False,
        grows_every: int = 0,
        steps_every: int = 0,
        saves_every: int = 0,
        excused: bool = False,
    ) -> Fact | None:
        """The first verdict in that time."""
        for second in range(1, seconds + 1):
            self.now += 1
            signs = Signs(
                ready,
                frozen,
                grew=bool(grows_every) and second % grows_every == 0,
                stepped=bool(steps_every) and second % steps_every == 0,
                saved=bool(saves_every) and second % saves_every == 0,
                excused=excused,
            )
            verdict = self.dog.look(self.now, signs)
            if verdict is not None:
                return verdict
        return None


def test_a_trainer_whose_step_stands_still_is_hung_after_the_users_limit() -> None:
    watched = Watched(20)
    assert watched.seconds(30, steps_every=5) is None
    assert watched.seconds(19) is None
    assert watched.seconds(1) == fact("stalled", seconds=20)


def test_the_learnt_limit_is_at_least_five_minutes() -> None:
    watched = Watched()
    assert watched.seconds(30, steps_every=5) is None
    assert watched.seconds(299) is None
    assert watched.seconds(1) == fact("stalled", seconds=300)


def test_the_learnt_limit_is_ten_of_the_longest_gaps() -> None:
    watched = Watched()
    assert watched.seconds(600, steps_every=60) is None
    assert watched.dog.longest_gap_s == 60
    assert watched.seconds(599) is None
    assert watched.seconds(1) == fact("stalled", seconds=600)


def test_steps_that_are_farther_apart_than_five_minutes_are_learnt_too() -> None:
    watched = Watched()
    assert watched.seconds(4000, steps_every=400) is None
    assert watched.dog.limit_s == 4000


def test_a_log_that_grew_for_as_long_as_the_limit_is_expected_to_go_on() -> None:
    watched = Watched(100)
    assert watched.seconds(110, grows_every=10) is None
    assert watched.seconds(100) == fact("stalled", seconds=100)


def test_a_task_that_only_printed_while_it_started_is_not_judged() -> None:
    watched = Watched(20)
    assert watched.seconds(5, grows_every=1) is None
    assert watched.seconds(3600) is None
    assert watched.seconds(1, grows_every=1) is None  # the message about a peer that has died
    assert watched.seconds(3600) is None


def test_a_task_that_serves_is_judged_only_when_it_is_frozen() -> None:
    watched = Watched(20, trains=False)
    assert watched.seconds(100, steps_every=1) is None
    assert watched.seconds(3600) is None
    assert watched.seconds(21, frozen=True) == fact("frozen", seconds=10)


def test_before_it_is_ready_a_task_may_be_silent_for_as_long_as_it_likes() -> None:
    watched = Watched(20, proven=True)
    assert watched.seconds(3600, ready=False) is None
    assert watched.seconds(19) is None
    assert watched.seconds(1) is not None


def test_a_frozen_task_is_noticed_even_before_it_is_ready() -> None:
    watched = Watched()
    assert watched.seconds(60, ready=False, frozen=True) is None
    assert watched.seconds(1, ready=False, frozen=True) == fact("frozen", seconds=60)


def test_with_a_long_limit_of_the_user_frozen_is_half_a_minute() -> None:
    watched = Watched(600)
    assert watched.seconds(30, frozen=True) is None
    assert watched.seconds(1, frozen=True) == fact("frozen", seconds=30)


def test_a_task_that_was_let_go_on_in_between_is_not_frozen() -> None:
    watched = Watched()
    for _ in range(10):
        assert watched.seconds(50, frozen=True) is None
        assert watched.seconds(1) is None


def test_a_newer_checkpoint_is_a_sign_of_progress() -> None:
    watched = Watched(20)
    watched.seconds(30, steps_every=5)
    assert watched.seconds(600, saves_every=15) is None
    assert watched.seconds(25) is not None


def test_when_the_machine_was_suspended_the_time_is_counted_again() -> None:
    watched = Watched(20)
    watched.seconds(30, steps_every=5)
    watched.seconds(15)
    watched.now += 3600
    assert watched.seconds(19) is None
    assert watched.seconds(5) is not None
    watched = Watched()
    watched.seconds(50, frozen=True)
    watched.now += 3600
    assert watched.seconds(50, frozen=True) is None


def test_once_its_target_step_is_reached_a_trainer_may_close_in_silence() -> None:
    watched = Watched(20)
    watched.seconds(30, steps_every=5)
    assert watched.seconds(200, excused=True) is None


def test_zero_switches_the_watchdog_off() -> None:
    watched = Watched(0)
    watched.seconds(30, steps_every=5)
    assert watched.seconds(3600) is None
    assert watched.seconds(3600, frozen=True) is None


def test_expensive_signs_are_looked_for_only_in_a_silence() -> None:
    watched = Watched(100)
    watched.seconds(30, steps_every=5)
    assert not watched.dog.is_quiet(watched.now)
    watched.seconds(30)
    assert watched.dog.is_quiet(watched.now)


def test_one_that_is_silent_before_its_first_step_is_hung_where_there_is_a_limit_for_it() -> None:
    watched = Watched(20, first_s=50.0)
    assert watched.seconds(40) is None
    assert watched.seconds(1, grows_every=1) is None  # it still says something
    assert watched.seconds(49) is None
    assert watched.seconds(1) == fact("stalled", seconds=50)


def test_after_its_first_steps_the_usual_limit_holds() -> None:
    watched = Watched(20, first_s=50.0)
    assert watched.seconds(30, steps_every=5) is None
    assert watched.seconds(20) == fact("stalled", seconds=20)


def test_without_a_limit_for_the_first_step_it_may_take_for_ever() -> None:
    for first_s in (None, 0.0):
        assert Watched(20, first_s=first_s).seconds(5000) is None
    assert Watched(20, first_s=50.0, trains=False).seconds(5000) is None
    assert Watched(20, first_s=50.0).seconds(5000, excused=True) is None


def test_it_counts_from_the_start_as_one_that_never_listens_keeps_the_others_waiting() -> None:
    assert Watched(20, first_s=50.0).seconds(49, ready=False) is None
    assert Watched(20, first_s=50.0).seconds(50, ready=False) == fact("stalled", seconds=50)
    assert Watched(20, first_s=50.0).seconds(50, ready=False, excused=True) == fact("stalled", seconds=50)
    watched = Watched(20, first_s=50.0)
    assert watched.seconds(400, ready=False, grows_every=40) is None  # it says something


def test_a_server_is_judged_until_it_listens_by_what_its_earlier_attempts_took() -> None:
    watched = Watched(20, trains=False)
    watched.dog = Watchdog(20, 0.0, False, False, watched.now, ready_limit_s=50.0)
    assert watched.seconds(49, ready=False, excused=True) is None
    assert watched.seconds(1, ready=False, excused=True) == fact("stalled", seconds=50)
    watched.dog = Watchdog(20, 0.0, False, False, watched.now, ready_limit_s=50.0)
    assert watched.seconds(40, ready=False) is None
    assert watched.seconds(5000) is None


def test_what_is_said_before_it_listens_proves_nothing() -> None:
    watched = Watched(20)
    assert watched.seconds(100, ready=False, grows_every=1) is None
    assert watched.seconds(3600) is None


def test_after_hangs_in_a_row_the_limit_for_the_first_step_is_longer_once_it_listens() -> None:
    watched = Watched(20, first_s=50.0)
    watched.dog = Watchdog(20, 0.0, True, False, watched.now, 50.0, in_vain=2)
    assert watched.seconds(199) is None
    assert watched.seconds(1) == fact("stalled", seconds=200)
    watched.dog = Watchdog(20, 0.0, True, False, watched.now, 50.0, in_vain=2)
    assert watched.seconds(50, ready=False) == fact("stalled", seconds=50)


def test_what_a_first_step_took_is_learnt_once_others_have_followed() -> None:
    watched = Watched()
    watched.seconds(30)
    watched.seconds(2, steps_every=1)
    assert watched.dog.first_step_s == 0.0
    watched.seconds(1, steps_every=1)
    assert watched.dog.first_step_s == 31
    watched.seconds(100, steps_every=1)
    assert watched.dog.first_step_s == 31


def test_steps_count_though_a_silence_would_be_excused() -> None:
    watched = Watched(20)
    watched.seconds(30, steps_every=5, excused=True)
    assert watched.dog.first_step_s == 5
    assert watched.dog.has_waited
    assert watched.seconds(20) == fact("stalled", seconds=20)


def test_of_one_that_was_at_work_before_nobody_knows_what_its_first_step_took() -> None:
    watched = Watched()
    watched.dog = Watchdog(None, 0.0, True, False, watched.now, adopted=True)
    watched.seconds(30, steps_every=1)
    assert watched.dog.first_step_s == 0.0
