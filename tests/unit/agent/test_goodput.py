"""Where the seconds of a run go: each belongs to one part, and the parts add up to the elapsed time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.reasons import sentence
from dtctl.agent.records.whole_run import Account
from dtctl.agent.run import goodput
from dtctl.agent.run.goodput import Seen
from tests.fuzz import cases


class Run:
    """A run that is looked at once a second."""

    def __init__(self) -> None:
        self.account = goodput.begun(1000.0)
        self.last: dict[str, int] = {}

    def pass_(self, seconds: int, situation: str = "train", *, lost: bool = False, hung: bool = False) -> Run:
        for _ in range(seconds):
            goodput.look(self.account, Seen(situation, {}, self.last, lost, hung), 1.0)
        return self

    def tell(self, step: int, task: str = "worker:0", passed_s: float = 1.0) -> Run:
        goodput.look(self.account, Seen("train", {task: step}, dict(self.last), False, False), passed_s)
        self.last[task] = step
        return self

    def train(self, first: int, last: int) -> Run:
        """A step a second."""
        for step in range(first, last + 1):
            self.tell(step)
        return self

    @property
    def parts(self) -> dict[str, float]:
        found = goodput.parts(self.account)
        assert sum(found.values()) == pytest.approx(self.account["seconds"])
        checked(Account, self.account)
        return {what: seconds for what, seconds in found.items() if seconds}

    @property
    def in_short(self) -> str:
        return sentence(goodput.told_in_short(goodput.parts(self.account)))


def started() -> Run:
    return Run().pass_(5, "wait").pass_(10, "start")


def test_a_run_waits_then_starts_then_trains() -> None:
    run = started().train(1, 80)
    assert run.parts == {"wait": 5, "start": 11, "kept": 79}
    assert run.in_short == "goodput 83 %: starts 12 %, waits 5 %"


def test_before_the_first_step_nothing_is_known_of_what_is_kept() -> None:
    run = started()
    assert not goodput.is_known(run.account)
    assert run.parts == {"wait": 5, "start": 10}
    assert goodput.is_known(run.tell(0).account)
    assert not goodput.is_known(None)


def test_steps_that_were_told_before_are_done_again() -> None:
    run = started().train(1, 100)
    run.pass_(3, "wait", lost=True).pass_(7, "start", lost=True).train(61, 120)
    assert run.parts == {"wait": 8, "start": 19, "kept": 99 + 20, "again": 39}


def test_a_step_that_is_heard_after_the_loss_of_its_task_was_made_before() -> None:
    run = started().train(1, 50).pass_(3)
    goodput.look(run.account, Seen("wait", {"worker:1": 52}, {"worker:1": 50}, lost=True), 1.0)
    assert (run.parts["kept"], run.parts["wait"]) == (49 + 3, 6)
    goodput.look(run.account, Seen("wait", {"worker:1": 53}, {"worker:1": 52}, lost=True), 1.0)
    run.pass_(5, "start", lost=True).tell(40).train(41, 60)
    assert run.parts["again"] == 13


def test_silence_while_a_host_is_away_is_its_absence() -> None:
    run = started().train(1, 10).pass_(6).pass_(20, "away").pass_(3, "train").pass_(2, "wait", lost=True)
    assert run.parts["away"] == 29
    goes_on = started().train(1, 10).pass_(2, "away")
    assert goes_on.tell(12).parts == {"wait": 5, "start": 11, "kept": 12}
    before_training = Run().pass_(4, "wait").pass_(9, "away").pass_(1, "wait")
    assert before_training.parts == {"wait": 5, "away": 9}


@pytest.mark.parametrize(
    ("outcome", "hung", "what"),
    [
        ("Succeeded", False, "end"),
        ("Failed", False, "unsaved"),
        ("Failed", True, "stall"),
        ("Stopped", False, "kept"),
    ],
)
def test_the_time_after_the_last_step_is_judged_by_the_outcome(outcome: str, hung: bool, what: str) -> None:
    run = started().train(1, 10).pass_(5)
    before = run.parts.get(what, 0.0) - (5.0 if what == "kept" else 0.0)
    goodput.close(run.account, outcome, hung)
    goodput.close(run.account, outcome, hung)
    assert run.parts[what] == before + 5.0


@cases
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
def test_whatever_happens_the_parts_add_up(happenings: list[tuple[str, float, int, bool, bool]], outcome: str) -> None:
    run = Run()
    for what, seconds, step, lost, hung in happenings:
        if what == "tell":
            run.tell(step, f"worker:{step % 2}", passed_s=seconds)
        elif what == "missed":
            goodput.missed(run.account, seconds)
        else:
            goodput.look(run.account, Seen(what, {}, run.last, lost, hung), seconds)
        assert all(one >= 0 for one in run.parts.values())
    if outcome:
        goodput.close(run.account, outcome, hung=False)
    assert sum(run.parts.values()) == pytest.approx(sum(one[1] for one in happenings))
