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


def test_a_newer_checkpoint_is_a_sign_of_progress() -> None:
    watched = Watched(20)
    watched.seconds(30, steps_every=5)
    assert watched.seconds(600, saves_every=15) is None
    assert watched.seconds(25) is not None


def test_once_its_target_step_is_reached_a_trainer_may_close_in_silence() -> None:
    watched = Watched(20)
    watched.seconds(30, steps_every=5)
    assert watched.seconds(200, excused=True) is None


def test_zero_switches_the_watchdog_off() -> None:
    watched = Watched(0)
    watched.seconds(30, steps_every=5)
    assert watched.seconds(3600) is None
    assert watched.seconds(3600, frozen=True) is None


def test_one_that_is_silent_before_its_first_step_is_hung_where_there_is_a_limit_for_it() -> None:
    watched = Watched(20, first_s=50.0)
    assert watched.seconds(40) is None
    assert watched.seconds(1, grows_every=1) is None  # it still says something
    assert watched.seconds(49) is None
    assert watched.seconds(1) == fact("stalled", seconds=50)


def test_a_server_is_judged_until_it_listens_by_what_its_earlier_attempts_took() -> None:
    watched = Watched(20, trains=False)
    watched.dog = Watchdog(20, 0.0, False, False, watched.now, ready_limit_s=50.0)
    assert watched.seconds(49, ready=False, excused=True) is None
    assert watched.seconds(1, ready=False, excused=True) == fact("stalled", seconds=50)
    watched.dog = Watchdog(20, 0.0, False, False, watched.now, ready_limit_s=50.0)
    assert watched.seconds(40, ready=False) is None
    assert watched.seconds(5000) is None


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
