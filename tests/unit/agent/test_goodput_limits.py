"""Goodput to the second: what is just no stall any more, what a step told late proves, and what a sum is made of."""

from __future__ import annotations

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import sentence
from dtctl.agent.records.whole_run import MOST_SPANS, Account
from dtctl.agent.run import goodput
from dtctl.agent.run.goodput import AWAY_GAPS, AWAY_S, STALL_GAPS, STALL_S, Seen
from tests.unit.agent.test_goodput import Run, started


def spans(run: Run) -> list[tuple[str, float, int | None]]:
    return [(one["what"], one["end_s"], one["step"]) for one in run.account["spans"]]


def trained(gap_s: float, advance: int = 1) -> Run:
    """It has told a step every `gap_s` for a while, the last just now."""
    run = started().tell(0)
    for number in range(1, 30):
        run.tell(number * advance, passed_s=gap_s)
    return run


def test_the_first_that_is_heard_of_a_run_may_be_a_step() -> None:
    run = Run().tell(5, passed_s=0.0).tell(6)
    assert spans(run) == [("start", 0, 5), ("kept", 1, 6)]
    assert run.account["reached"] == 6
    assert Run().tell(0).account["reached"] == 0


def test_of_steps_that_are_told_at_once_the_highest_counts() -> None:
    run = started().train(1, 5)
    goodput.look(run.account, Seen("train", {"worker:0": 6, "worker:1": 3}, run.last), 1.0)
    assert spans(run)[-1][2] == 6


def test_an_account_of_a_training_without_spans_is_judged_from_its_beginning() -> None:
    account = made(Account, since=0.0, seconds=STALL_S + 0.5, training=True)
    assert goodput.unjudged(account) == "stall"
    assert goodput.unjudged({**account, "seconds": STALL_S}) == "kept"


@pytest.mark.parametrize(("gap_s", "limit_s"), [(1.0, STALL_S), (5.0, 5 * STALL_GAPS)])
def test_a_silence_is_a_stall_when_it_is_longer_than_both_limits(gap_s: float, limit_s: float) -> None:
    run = trained(gap_s)
    before = run.account["seconds"]
    run.account["seconds"] += limit_s
    assert goodput.unjudged(run.account) == "kept"
    run.account["seconds"] = before + limit_s + 0.1
    assert goodput.unjudged(run.account) == "stall"


@pytest.mark.parametrize(("gap_s", "limit_s"), [(1.0, AWAY_S), (5.0, 5 * AWAY_GAPS)])
def test_while_a_host_is_away_the_limits_are_lower(gap_s: float, limit_s: float) -> None:
    run = trained(gap_s).pass_(1, "away")
    run.account["seconds"] += limit_s - 1
    assert goodput.unjudged(run.account) == "kept"
    run.account["seconds"] += 0.1
    assert goodput.unjudged(run.account) == "away"


def test_a_host_that_was_away_before_the_last_step_excuses_nothing_after_it() -> None:
    run = trained(1.0).pass_(2, "away").tell(40).pass_(20)
    assert goodput.unjudged(run.account) == "kept"


@pytest.mark.parametrize(("silent_s", "stalls"), [(STALL_S, False), (STALL_S + 1, True)])
def test_a_step_after_a_silence_says_what_the_silence_was(silent_s: float, stalls: bool) -> None:
    run = trained(1.0).tell(30, passed_s=silent_s)
    assert ("stall" in run.parts) is stalls
    assert (run.account["gap_s"] > 1.0) is not stalls, "a stall is no gap"


@pytest.mark.parametrize(("steps", "kept"), [(49, False), (50, True)])
def test_half_of_the_steps_that_the_time_would_have_had_prove_that_they_were_made(steps: int, kept: bool) -> None:
    run = trained(1.0).tell(29 + steps, passed_s=100.0)
    assert ("stall" not in run.parts) is kept


def test_without_a_pace_nothing_is_proved_by_one_step() -> None:
    run = started().tell(0).tell(1, passed_s=STALL_S + 1)
    assert run.parts["stall"] == STALL_S + 1


def test_gaps_and_paces_are_learnt_by_a_fifth_of_the_newest() -> None:
    def usual(run: Run) -> tuple[float, float]:
        return round(run.account["gap_s"], 6), round(run.account["pace"], 6)

    run = started().tell(0).tell(10, passed_s=5.0)
    assert usual(run) == (5.0, 2.0)
    assert usual(run.tell(50, passed_s=10.0)) == (6.0, 2.4)
    assert usual(run.tell(50, passed_s=6.0)) == (6.0, 2.4), "no step, no pace"
    assert usual(run.tell(51, passed_s=0.0)) == (6.0, 2.4), "no time, no gap"
    assert usual(run.tell(52, passed_s=1000.0)) == (6.0, 2.4), "a stall is no gap"


def test_the_step_that_was_reached_before_the_loss_is_still_done_again() -> None:
    run = started().train(1, 10).pass_(1, "wait", lost=True).tell(9).tell(10)
    assert (run.account["again_to"], spans(run)[-1]) == (10, ("again", 28, 10))
    run.tell(11)
    assert (run.account["again_to"], spans(run)[-1]) == (None, ("kept", 29, 11))


def test_what_is_heard_late_says_how_far_the_run_had_come() -> None:
    run = started().train(1, 10)
    goodput.look(run.account, Seen("wait", {"worker:0": 9, "worker:1": 14}, run.last, lost=True), 1.0)
    assert (run.account["reached"], run.account["again_to"]) == (14, 14)
    goodput.look(run.account, Seen("wait", {"worker:1": 12}, run.last, lost=True), 1.0)
    assert run.account["reached"] == 14
    fresh = Run()
    goodput.look(fresh.account, Seen("wait", {"worker:0": 0}, {}), 1.0)
    assert fresh.account["reached"] == 0


def test_a_time_in_which_nobody_looked_belongs_to_what_went_on() -> None:
    run = started().train(1, 10)
    goodput.missed(run.account, 300.0)
    assert run.parts["stall"] == 300
    begins = Run().pass_(5, "wait")
    goodput.missed(begins.account, 10.0)
    assert begins.pass_(1, "start").parts == {"wait": 15, "start": 1}
    away = Run().pass_(4, "away")
    goodput.missed(away.account, 6.0)
    assert away.parts == {"away": 10}


def test_what_passes_after_the_end_belongs_to_the_end() -> None:
    run = started().train(1, 10).pass_(5)
    goodput.close(run.account, "Succeeded", hung=False)
    goodput.missed(run.account, 60.0)
    assert run.parts["end"] == 65


def test_a_run_that_ends_before_it_trains_is_left_as_it_is() -> None:
    fresh = Run()
    goodput.close(fresh.account, "Failed", hung=False)
    assert spans(fresh) == []
    run = started()
    goodput.close(run.account, "Failed", hung=True)
    assert spans(run) == [("wait", 5, None), ("start", 15, None)]


def test_parts_are_what_was_before_the_spans_the_spans_and_what_came_since() -> None:
    account = made(Account, since=0.0, seconds=20.25)
    account["before"] = {"kept": 4.0, "wait": 1.0}
    account["spans"] = [{"what": "start", "end_s": 5.5, "step": None}, {"what": "kept", "end_s": 20.0, "step": 1}]
    found = {what: seconds for what, seconds in goodput.parts(account).items() if seconds}
    assert found == {"kept": 4.0 + 14.5 + 0.25, "wait": 1.0, "start": 0.5}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ({}, "goodput 0 %"),
        ({"kept": 0.5}, "goodput 100 %"),
        ({"kept": 90.0, "wait": 4.0, "start": 6.0}, "goodput 90 %: starts 6 %, waits 4 %"),
        ({"kept": 99.6, "wait": 0.4}, "goodput 100 %"),
    ],
)
def test_in_short_the_largest_parts_come_first_and_the_smallest_not_at_all(
    seconds: dict[str, float], words: str
) -> None:
    assert sentence(goodput.told_in_short(seconds)) == words  # type: ignore[arg-type]


def test_the_oldest_spans_become_sums() -> None:
    run = Run()
    for number in range(MOST_SPANS + 2):
        run.pass_(number + 1, "start" if number % 2 else "wait")
    assert len(run.account["spans"]) == MOST_SPANS
    assert run.account["before"] == {"wait": 1.0, "start": 2.0}
    run.pass_(1, "start" if MOST_SPANS % 2 else "wait")
    assert run.account["before"] == {"wait": 4.0, "start": 2.0}


def test_a_span_of_no_length_is_none_unless_it_is_the_first() -> None:
    run = Run().pass_(1, "wait")
    goodput.look(run.account, Seen("start", {}, {}), 0.0)
    assert spans(run) == [("wait", 1, None)]
    run = Run()
    goodput.look(run.account, Seen("start", {}, {}), 0.0)
    assert spans(run) == [("start", 0, None)]
