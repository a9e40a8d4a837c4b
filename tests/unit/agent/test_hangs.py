"""When a task is taken for hung: recorded signs on a clock that the test turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Hang, Past
from dtctl.agent.records.spec import Member
from dtctl.agent.run.hangs import (
    GAPS,
    LEAST_LEARNT_S,
    Signs,
    Watchdog,
    has_never_hung,
    hung_in_a_row,
    is_done,
    is_judged_by_progress,
    is_waited_for,
    limit_of_first_step,
    limit_of_readiness,
    patience,
    trains_alone,
)
from tests.unit.agent.supervise import supervised


def past(step: int | None = None, **fields: Any) -> Past:
    return made(Past, attempt=1, started=0.0, ended=1.0, step=step, **{"asked": False, **fields})


def watchdog(
    stall_s: float | None = None,
    longest_gap_s: float = 0.0,
    *,
    trains: bool = True,
    proven: bool = False,
    first_s: float | None = None,
    **entry: Any,
) -> Watchdog:
    """`proven`: it has reported steps before; its last sign was at 1000."""
    member = made(Member, task="worker:0", host="a", role="worker" if trains else "ps")
    known = {"step": 1, "longest_gap_s": longest_gap_s or 0.1} if proven else {}
    limits = supervised.recovery(stall_s=stall_s, first_step_s=first_s)
    return Watchdog(made(Entry, **known, **entry), member, limits, 1000.0)


class Watched:
    """A watchdog that is asked every second, as the supervisor does."""

    def __init__(self, *limit_s: float, **settings: Any) -> None:
        self.now = 1000.0
        self.dog = watchdog(*limit_s, **settings)

    def seconds(self, seconds: int, pause_s: float = 0.0, **signs: Any) -> Hang | None:
        """The first verdict in that time; `grows_every`, `steps_every` and `saves_every` so many seconds."""
        every = {sign: signs.pop(f"{verb}_every", 0) for verb, sign in SIGNS.items()}
        self.now += pause_s
        for second in range(1, seconds + 1):
            self.now += 1
            seen = {sign: bool(period) and second % period == 0 for sign, period in every.items()}
            verdict = self.dog.update(self.now, Signs(**{"ready": True, **seen, **signs}))
            if verdict is not None:
                return verdict
        return None


SIGNS = {"grows": "grew", "steps": "stepped", "saves": "saved"}


def span(seconds: int, verdict: Hang | bool = False, **signs: Any) -> tuple[int, Hang | bool, dict[str, Any]]:
    """`verdict`: at the end of that time, True for any."""
    return seconds, verdict, signs


def limited(stall_s: float, **settings: Any) -> Callable[[], Watched]:
    return lambda: Watched(stall_s, **settings)


HUNG_TWICE: dict[str, Any] = {"first_step_s": 5.0, "history": [past(hung=True)] * 2}
TRAINED = span(30, steps_every=5)
REGULAR = span(15, grows_every=5)
SPANS: dict[str, Any] = {
    "a server is judged only when it is frozen": (
        limited(20, trains=False),
        span(100, steps_every=1),
        span(3600),
        span(21, {"kind": "frozen", "seconds": 10}, frozen=True),
    ),
    "before it is ready a task may be silent": (
        limited(20, proven=True),
        span(3600, ready=False),
        span(19),
        span(1, True),
    ),
    "a newer checkpoint is progress": (limited(20), TRAINED, span(600, saves_every=15), span(25, True)),
    "a trainer may close in silence": (limited(20), TRAINED, span(200, excused=True)),
    "zero switches it off": (limited(0), TRAINED, span(3600), span(3600, frozen=True)),
    "a limit for the first step": (
        limited(20, first_s=50.0),
        span(40),
        span(1, grows_every=1),
        span(49),
        span(1, {"kind": "silent", "seconds": 50}),
    ),
    "a server is judged until it listens by its earlier attempts": (
        limited(20, trains=False, ready_s=5.0),
        span(49, ready=False, excused=True),
        span(1, {"kind": "silent", "seconds": 50}, ready=False, excused=True),
    ),
    "a start that says something goes on": (
        limited(20, trains=False, ready_s=5.0),
        span(200, ready=False, grows_every=40),
    ),
    "and not afterwards": (limited(20, trains=False, ready_s=5.0), span(40, ready=False), span(5000)),
    "after hangs in a row the first step may take longer": (
        limited(20, **HUNG_TWICE),
        span(199),
        span(1, {"kind": "silent", "seconds": 200}),
    ),
    "but only once it listens": (limited(20, **HUNG_TWICE), span(50, {"kind": "silent", "seconds": 50}, ready=False)),
    "regularity begins anew after a pause": (limited(20), REGULAR, span(10, pause_s=11, grows_every=5), span(100)),
    "after an excuse": (limited(20), REGULAR, span(1, excused=True), span(10, grows_every=5), span(3600)),
    "after it was not ready": (limited(20), REGULAR, span(1, ready=False), span(10, grows_every=5), span(3600)),
    "one step is enough for the user's limit": (limited(20), span(9, steps_every=9), span(19), span(1, True)),
    "also where another supervisor has seen it": (limited(20, step=7), span(19), span(1, True)),
    "the learnt limit goes by what the first took": (Watched, span(90, steps_every=90), span(899), span(1, True)),
    "and doubles with hangs in a row": (
        lambda: Watched(history=[past(4, hung=True)] * 2),
        span(9, steps_every=9),
        span(1199),
        span(1, True),
    ),
    "until two more have followed": (Watched, span(90), span(3, steps_every=1), span(299), span(1, True)),
    "and saving a checkpoint is progress": (limited(20), span(9, steps_every=9), span(99, saves_every=15)),
    "without a step there is no limit": (Watched, span(3620)),
    "a log that has grown for less than the limit": (limited(20), span(18, grows_every=6), span(3620)),
    "a log that has grown for as long as the limit": (limited(20), span(20, grows_every=10), span(20, True)),
    "the second step may take as long as the first": (Watched, span(99), span(2, steps_every=1), span(998)),
    "and after the third the limit is that of the others": (
        Watched,
        span(99),
        span(3, steps_every=1),
        span(299),
        span(1, True),
    ),
    "a gap as long as the limit": (limited(20), span(20, grows_every=20), span(20, True)),
    "a longer gap": (limited(20), span(21, grows_every=21), span(3620)),
}


@pytest.mark.parametrize("case", SPANS)
def test_silence_is_a_hang_once_progress_was_proven(case: str) -> None:
    begun, *spans = SPANS[case]
    watched = begun()
    for seconds, expected, signs in spans:
        verdict = watched.seconds(seconds, **signs)
        assert (verdict is not None if isinstance(expected, bool) else verdict) == expected


def test_first_step_duration_is_learnt_after_further_steps() -> None:
    watched = Watched()
    watched.seconds(30)
    watched.seconds(2, steps_every=1)
    assert watched.dog.first_step_s == 0.0
    watched.seconds(1, steps_every=1)
    assert watched.dog.first_step_s == 31
    watched.seconds(100, steps_every=1)
    assert watched.dog.first_step_s == 31


def proven(stall_s: float | None = 20.0, longest_gap_s: float = 0.0) -> Watchdog:
    return watchdog(stall_s, longest_gap_s, proven=True)


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
    assert watched.dog.longest_gap_s == 0, "it has reported no step before"
    watched.seconds(301, steps_every=301)
    assert watched.dog.longest_gap_s == 301


def test_a_silence_is_quiet_after_a_quarter_of_the_limit() -> None:
    assert not proven(20.0).is_quiet(1005.0)
    assert proven(20.0).is_quiet(1005.1)
    assert watchdog(20.0, step=1).is_quiet(1005.1), "it has reported a step"
    assert not watchdog(20.0).is_quiet(2000.0)


FROZEN, AWAKE = Signs(ready=True, frozen=True), Signs(ready=True, grew=True)


@pytest.mark.parametrize(
    ("stall_s", "moments"),
    [
        (None, dict.fromkeys(range(0, 61, 10), Signs(ready=False, frozen=True))),
        (20.0, dict.fromkeys(range(0, 11, 5), FROZEN)),
        (20.0, dict.fromkeys((1, 6, 17, 26, 27), FROZEN)),
        (20.0, {1: FROZEN, 6: AWAKE, 7: FROZEN, 16: FROZEN, 17: FROZEN}),
    ],
    ids=["learnt limit", "limit of the user", "counted anew after a pause", "counted anew after a look without"],
)
def test_a_frozen_task_is_put_down_at_the_limit_and_not_before(
    stall_s: float | None, moments: dict[int, Signs]
) -> None:
    dog = proven(stall_s)
    hung = [dog.update(1000.0 + second, signs) is not None for second, signs in moments.items()]
    assert hung == [False] * (len(moments) - 1) + [True]


def test_first_step_counts_unless_the_task_was_excused_before() -> None:
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


@pytest.mark.parametrize(("known_s", "excused", "noted_s"), [(3.0, True, 3.0), (0.0, True, 31.0), (3.0, False, 31.0)])
def test_a_first_step_is_noted_unless_it_waited_and_an_earlier_one_is_known(
    known_s: float, excused: bool, noted_s: float
) -> None:
    watched = Watched(first_step_s=known_s)
    watched.seconds(30, excused=excused)
    watched.seconds(3, steps_every=1)
    assert watched.dog._entry["first_step_s"] == noted_s


@pytest.mark.parametrize(
    ("entry", "peers_s", "stall_s", "limit_s"),
    [
        ({}, 0.0, None, None),
        ({"first_step_s": 3.0}, 0.0, None, LEAST_LEARNT_S),
        ({"first_step_s": 60.0}, 0.0, None, GAPS * 60.0),
        ({"first_step_s": 3.0}, 0.0, 10.0, 30.0),
        ({"first_step_s": 0.5}, 0.0, 10.0, 10.0),
        ({}, 50.0, None, 500.0),
        ({"first_step_s": 3.0}, 50.0, None, LEAST_LEARNT_S),
        ({"history": [past()]}, 50.0, None, 500.0),
        ({"history": [past(hung=True)]}, 50.0, None, None),
        ({"history": [past(hung=True)], "first_step_s": 50.0}, 0.0, None, 500.0),
        ({"history": [past(7)]}, 0.0, 10.0, LEAST_LEARNT_S),
        ({"history": [past(7)], "longest_gap_s": 50.0}, 0.0, None, 500.0),
        ({"history": [past(7)]}, 0.0, 900.0, 900.0),
    ],
)
def test_first_step_limit_is_learnt_from_own_attempts_and_once_from_peers(
    entry: dict[str, Any], peers_s: float, stall_s: float | None, limit_s: float | None
) -> None:
    assert limit_of_first_step(made(Entry, **entry), supervised.recovery(stall_s=stall_s), peers_s) == limit_s


@pytest.mark.parametrize(
    ("history", "count"),
    [
        ([], 0),
        ([past(hung=True)], 1),
        ([past(hung=True), past(5)], 0),
        ([past(5), past(hung=True), past(hung=True)], 2),
        ([past(hung=True), past(asked=True)], 1),
    ],
)
def test_hangs_in_a_row_are_counted_without_requested_ends(history: list[Past], count: int) -> None:
    entry = made(Entry, history=history)
    assert hung_in_a_row(entry) == count
    assert has_never_hung(entry) is not any(each["hung"] for each in history)


@pytest.mark.parametrize(
    ("strategy", "role", "serves", "alone", "waited_for", "by_progress"),
    [
        ("async-ps", "worker", False, True, False, True),
        ("async-ps", "lead", False, False, True, True),
        ("async-ps", "ps", True, False, True, False),
        ("async-ps", "evaluator", False, False, False, False),
        ("sync-ps", "worker", False, False, True, True),
        ("ps-strategy", "worker", True, False, True, True),
        ("in-graph", "worker", True, False, True, True),
        ("collective", "worker", False, False, True, True),
        ("kvstore", "worker", False, False, True, True),
        (None, "other", False, False, True, True),
    ],
)
def test_dependencies_follow_from_the_strategy(
    strategy: str | None, role: str, serves: bool, alone: bool, waited_for: bool, by_progress: bool
) -> None:
    member = made(Member, task="worker:1", host="a", role=role, serves=serves)
    assert trains_alone(member, strategy) is alone
    assert is_waited_for(member, strategy) is waited_for
    assert is_judged_by_progress(member) is by_progress


@pytest.mark.parametrize(
    ("ready_s", "first_step_s", "stall_s", "limit_s"),
    [
        (0.0, None, None, None),
        (3.0, None, None, LEAST_LEARNT_S),
        (60.0, None, None, GAPS * 60.0),
        (0.5, None, 3.0, 5.0),
        (3.0, 1200.0, None, 1200.0),
        (3.0, 0.0, None, 0.0),
    ],
)
def test_how_long_a_task_takes_until_it_listens_is_learnt_from_its_own_attempts(
    ready_s: float, first_step_s: float | None, stall_s: float | None, limit_s: float | None
) -> None:
    limits = supervised.recovery(first_step_s=first_step_s, stall_s=stall_s)
    assert limit_of_readiness(made(Entry, ready_s=ready_s), limits) == limit_s


@pytest.mark.parametrize(
    ("step", "target", "done"), [(None, 9, False), (9, None, False), (8, 9, False), (9, 9, True), (10, 9, True)]
)
def test_a_run_is_done_once_its_target_step_is_reached(step: int | None, target: int | None, done: bool) -> None:
    assert is_done(step, target) is done


def test_the_limit_is_the_users_or_ten_gaps_or_five_minutes() -> None:
    assert proven(7.0, 100.0).limit_s == 7
    assert proven(None, 100.0).limit_s == GAPS * 100
    assert proven(None, 1.0).limit_s == LEAST_LEARNT_S


def test_a_limit_doubles_with_each_time_that_it_was_in_vain_and_not_for_ever() -> None:
    assert [patience(300.0, count) for count in (0, 1, 2)] == [300.0, 600.0, 1200.0]
    assert patience(300.0, 10) == patience(300.0, 10_000)


def behind(
    seconds: int, *, idle_s: float = 1000.0, behind_s: float | None = 60.0, proven: bool = True, **signs: Any
) -> bool:
    """Whether a task that has stepped last so long ago is ended, as a cut may have left it hanging."""
    dog = watchdog(proven=proven)
    for second in range(1, seconds + 1):
        seen = Signs(ready=True, **{"idle_s": min(idle_s, float(second)), **signs})
        if dog.update(1000.0 + second, seen, 0.0, behind_s) is not None:
            return True
    return False


def test_a_task_that_a_cut_has_left_hanging_is_ended_after_its_limit() -> None:
    assert behind(60)
    assert not behind(59)
    assert not behind(120, behind_s=None)


@pytest.mark.parametrize(
    "signs",
    [{"idle_s": 10.0}, {"excused": True}, {"grew": True}, {"saved": True}, {"stepped": True}, {"proven": False}],
    ids=lambda signs: next(iter(signs)),
)
def test_a_task_behind_its_peers_that_works_writes_or_is_excused_is_left_alone(signs: dict[str, Any]) -> None:
    assert not behind(200, **signs)
