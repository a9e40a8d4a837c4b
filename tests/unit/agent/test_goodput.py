"""Where the seconds of a run go: each belongs to one part, and the parts add up to the elapsed time."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import sentence
from dtctl.agent.records.whole_run import MOST_SPANS, Account
from dtctl.agent.run import goodput
from dtctl.agent.run.goodput import AWAY_GAPS, AWAY_S, STALL_GAPS, STALL_S
from tests.fuzz import cases


class Run:
    """A run that is looked at once a second."""

    def __init__(self) -> None:
        self.account = goodput.begun(1000.0)
        self.last: dict[str, int] = {}

    def pass_(self, seconds: int, situation: str = "train", **how: bool) -> Run:
        for _ in range(seconds):
            self.hear(situation, {}, **how)
        return self

    def hear(self, situation: str, steps: dict[str, int], passed_s: float = 1.0, **how: bool) -> Run:
        """Steps of tasks, which count as the last ones afterwards."""
        goodput.account_for(self.account, passed_s, situation, steps, dict(self.last), **how)
        self.last.update(steps)
        return self

    def tell(self, step: int, task: str = "worker:0", passed_s: float = 1.0) -> Run:
        return self.hear("train", {task: step}, passed_s)

    def train(self, first: int, last: int) -> Run:
        """A step a second."""
        for step in range(first, last + 1):
            self.tell(step)
        return self

    def miss(self, seconds: float) -> Run:
        goodput.missed(self.account, seconds)
        return self

    def close(self, outcome: str, hung: bool = False) -> Run:
        goodput.close(self.account, outcome, hung)
        return self

    @property
    def parts(self) -> dict[str, float]:
        found = goodput.parts(self.account)
        assert sum(found.values()) == pytest.approx(self.account["seconds"])
        checked(Account, self.account)
        return {what: seconds for what, seconds in found.items() if seconds}


def started() -> Run:
    return Run().pass_(5, "wait").pass_(10, "start")


def lost(run: Run, wait_s: int = 3, start_s: int = 7) -> Run:
    return run.pass_(wait_s, "wait", lost=True).pass_(start_s, "start", lost=True)


BEGUN = {"wait": 5, "start": 11}
TRAINED = {**BEGUN, "kept": 9}
PARTS: dict[str, tuple[Run, dict[str, float]]] = {
    "before the first step": (started(), {"wait": 5, "start": 10}),
    "training": (started().train(1, 80), {**BEGUN, "kept": 79}),
    "steps that were reported before are done again": (
        lost(started().train(1, 100)).train(61, 120),
        {"wait": 8, "start": 19, "kept": 99 + 20, "again": 39},
    ),
    "a silence before a loss": (lost(started().train(1, 10).pass_(4), 2, 0), {**TRAINED, "wait": 7, "again": 4}),
    "a silence before a hang ends": (
        started().train(1, 10).pass_(4).pass_(2, "wait", lost=True, hung=True),
        {**TRAINED, "wait": 7, "stall": 4},
    ),
    "a silence before an order": (
        started().train(1, 10).pass_(4).pass_(2, "wait"),
        {**TRAINED, "wait": 7, "kept": 13},
    ),
    "silence while a host is away": (
        lost(started().train(1, 10).pass_(6).pass_(20, "away").pass_(3), 2, 0),
        {**TRAINED, "wait": 7, "away": 29},
    ),
    "a host away while others trained": (started().train(1, 10).pass_(2, "away").tell(12), {**BEGUN, "kept": 12}),
    "a host away before training": (Run().pass_(4, "wait").pass_(9, "away").pass_(1, "wait"), {"wait": 5, "away": 9}),
    "one step proves nothing without a pace": (
        started().tell(0).tell(1, passed_s=11 * STALL_GAPS + 1),
        {**BEGUN, "stall": 11 * STALL_GAPS + 1},
    ),
    "a second step that takes as long as the first": (
        Run().pass_(599, "start").tell(500).tell(1000, passed_s=600).tell(1500, passed_s=610),
        {"start": 600, "kept": 1210},
    ),
    "several steps at once without a pace": (
        started().tell(0).tell(500, passed_s=400).tell(1000, passed_s=500),
        {**BEGUN, "kept": 900},
    ),
    "slow steps, of which the first proves nothing": (
        started().tell(0).tell(1, passed_s=300).tell(2, passed_s=300).tell(3, passed_s=310),
        {**BEGUN, "stall": 300, "kept": 610},
    ),
    "a time in which nobody looked": (started().train(1, 10).miss(300.0), {**TRAINED, "stall": 300}),
    "nobody looked while it waited": (Run().pass_(5, "wait").miss(10.0).pass_(1, "start"), {"wait": 15, "start": 1}),
    "nobody looked while a host was away": (Run().pass_(4, "away").miss(6.0), {"away": 10}),
    "after the end": (started().train(1, 10).pass_(5).close("Succeeded").miss(60.0), {**TRAINED, "end": 65}),
}


@pytest.mark.parametrize("case", PARTS)
def test_each_second_belongs_to_what_went_on(case: str) -> None:
    run, parts = PARTS[case]
    assert run.parts == parts


def test_before_the_first_step_nothing_is_known_of_what_is_kept() -> None:
    run = started()
    assert not goodput.is_known(run.account)
    assert goodput.is_known(run.tell(0).account)
    assert not goodput.is_known(None)


def test_late_step_of_a_lost_task_counts_before_its_loss() -> None:
    run = started().train(1, 50).pass_(3)
    run.last = {"worker:1": 50}
    run.hear("wait", {"worker:1": 52}, lost=True)
    assert (run.parts["kept"], run.parts["wait"]) == (49 + 3, 6)
    run.hear("wait", {"worker:1": 53}, lost=True).pass_(5, "start", lost=True).tell(40).train(41, 60)
    assert run.parts["again"] == 13


@pytest.mark.parametrize(
    ("outcome", "hung", "what"),
    [("Succeeded", False, "end"), ("Failed", False, "unsaved"), ("Failed", True, "stall"), ("Stopped", False, "kept")],
)
def test_the_time_after_the_last_step_is_judged_by_the_outcome(outcome: str, hung: bool, what: str) -> None:
    run = started().train(1, 10).pass_(5)
    before = run.parts.get(what, 0.0) - (5.0 if what == "kept" else 0.0)
    assert run.close(outcome, hung).close(outcome, hung).parts[what] == before + 5.0


@cases
@example([("tell", 0.0, 2, False, False), ("tell", 1e-308, 4, False, False), ("tell", 1e-308, 6, False, False)], "")
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["train", "away", "start", "wait", "tell", "missed"]),
            st.floats(0, 500),
            st.integers(0, 300),
            st.booleans(),
            st.booleans(),
        ),
        max_size=60,
    ),
    st.sampled_from(["", "Succeeded", "Failed", "Stopped"]),
)
def test_categories_always_add_up(happenings: list[tuple[str, float, int, bool, bool]], outcome: str) -> None:
    run = Run()
    for what, seconds, step, lost, hung in happenings:
        if what == "tell":
            run.tell(step, f"worker:{step % 2}", passed_s=seconds)
        elif what == "missed":
            run.miss(seconds)
        else:
            run.hear(what, {}, seconds, lost=lost, hung=hung)
        assert all(one >= 0 for one in run.parts.values())
    if outcome:
        run.close(outcome)
    assert sum(run.parts.values()) == pytest.approx(sum(one[1] for one in happenings))


def spans(run: Run) -> list[tuple[str, float, int | None]]:
    return [(one["what"], one["end_s"], one["step"]) for one in run.account["spans"]]


def trained(gap_s: float, advance: int = 1) -> Run:
    """It has reported a step every `gap_s` for a while, the last just now."""
    run = started().tell(0)
    for number in range(1, 30):
        run.tell(number * advance, passed_s=gap_s)
    return run


@pytest.mark.parametrize(
    ("run", "last", "reached", "again_to"),
    [
        (Run(), [], None, None),
        (Run().close("Failed"), [], None, None),
        (started().close("Failed", hung=True), [("wait", 5, None), ("start", 15, None)], None, None),
        (Run().tell(5, passed_s=0.0).tell(6), [("start", 0, 5), ("kept", 1, 6)], 6, None),
        (Run().tell(0), [("start", 1, 0)], 0, None),
        (started().train(1, 5).hear("train", {"worker:0": 6, "worker:1": 3}), [("kept", 21, 6)], 6, None),
        (started().train(1, 10).pass_(1, "wait", lost=True).tell(9).tell(10), [("again", 28, 10)], 10, 10),
        (started().train(1, 10).pass_(1, "wait", lost=True).train(9, 11), [("kept", 29, 11)], 11, None),
        (Run().pass_(1, "wait").hear("start", {}, 0.0), [("wait", 1, None)], None, None),
        (Run().hear("start", {}, 0.0), [("start", 0, None)], None, None),
    ],
    ids=[
        *("nothing", "an end before all", "an end before it trains", "a step first of all", "the first of all steps"),
        *("the highest of several", "again after a loss", "further than before", "no length", "the first"),
    ],
)
def test_the_last_spans_and_how_far_the_run_has_come(
    run: Run, last: list[tuple[str, float, int | None]], reached: int | None, again_to: int | None
) -> None:
    assert spans(run)[-len(last) :] == last
    assert (run.account["reached"], run.account["again_to"]) == (reached, again_to)


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


def test_gaps_and_paces_are_learnt_by_a_fifth_of_the_newest() -> None:
    def usual(run: Run) -> tuple[float, float]:
        return round(run.account["gap_s"], 6), round(run.account["pace"], 6)

    run = started().tell(0).tell(10, passed_s=5.0)
    assert usual(run) == (5.0, 2.0)
    assert usual(run.tell(50, passed_s=10.0)) == (6.0, 2.4)
    assert usual(run.tell(50, passed_s=6.0)) == (6.0, 2.4), "no step, no pace"
    assert usual(run.tell(51, passed_s=0.0)) == (6.0, 2.4), "no time, no gap"
    assert usual(run.tell(52, passed_s=1000.0)) == (6.0, 2.4), "a stall is no gap"


def test_late_report_updates_the_highest_step() -> None:
    run = started().train(1, 10).hear("wait", {"worker:0": 9, "worker:1": 14}, lost=True)
    assert (run.account["reached"], run.account["again_to"]) == (14, 14)
    assert run.hear("wait", {"worker:1": 12}, lost=True).account["reached"] == 14
    assert Run().hear("wait", {"worker:0": 0}).account["reached"] == 0


def test_parts_are_what_was_before_the_spans_the_spans_and_what_came_since() -> None:
    account = made(Account, since=0.0, seconds=20.25)
    account["before"] = {"kept": 4.0, "wait": 1.0}
    account["spans"] = [{"what": "start", "end_s": 5.5, "step": None}, {"what": "kept", "end_s": 20.0, "step": 1}]
    found = {what: seconds for what, seconds in goodput.parts(account).items() if seconds}
    assert found == {"kept": 4.0 + 14.5 + 0.25, "wait": 1.0, "start": 0.5}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ({}, "goodput 0 %"),
        ({"kept": 0.5}, "goodput 100 %"),
        ({"kept": 90.0, "wait": 4.0, "start": 6.0}, "goodput 90 %: startup 6 %, waiting 4 %"),
        ({"kept": 99.6, "wait": 0.4}, "goodput 100 %"),
    ],
)
def test_the_summary_has_the_largest_parts_only(seconds: dict[str, float], expected: str) -> None:
    assert sentence(goodput.summary(seconds)) == expected  # type: ignore[arg-type]


def test_the_oldest_spans_become_sums() -> None:
    run = Run()
    for number in range(MOST_SPANS + 2):
        run.pass_(number + 1, "start" if number % 2 else "wait")
    assert len(run.account["spans"]) == MOST_SPANS
    assert run.account["before"] == {"wait": 1.0, "start": 2.0}
    run.pass_(1, "start" if MOST_SPANS % 2 else "wait")
    assert run.account["before"] == {"wait": 4.0, "start": 2.0}
