"""Which part of the nightly runs for a change: a slice of the marked tests, pieces by turn, landings in the history."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from tests.nightly import history, rotation, slices
from tests.nightly.history import QUIET_S, Commit
from tests.nightly.parts import MARKED, PARTS, PIECES
from tests.nightly.rotation import BY_SLICES, ONLY_BY_NIGHT, SLICES, WHOLE_BY_NIGHT, Turn
from tests.nightly.running import ROOT, Limits, PartResult

MINUTE = 60


@dataclass
class Item:
    name: str
    marks: dict[str, pytest.Mark] = field(default_factory=dict)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.marks.get(name)


def chosen(monkeypatch: pytest.MonkeyPatch, number: int, of: int, order: str = "a") -> list[Item]:
    """A slice has its share of 20 trainings and 83 other tests."""
    for name, value in slices.settings(number, of, order).items():
        monkeypatch.setenv(name, value)
    training = pytest.mark.training.mark
    items: Any = [Item(f"training {n}", {"training": training}) for n in range(20)]
    items += [Item(f"other {n}") for n in range(83)]
    for item in (items[3], items[13], items[63]):
        item.marks["timeout"] = pytest.mark.timeout(900).mark
    hook = slices.pytest_collection_modifyitems(Mock(), items)
    next(hook)
    with suppress(StopIteration):
        next(hook)
    return list(items)


def test_slices_have_every_test_once_and_trainings_in_equal_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [chosen(monkeypatch, number, 10) for number in range(10)]
    names = [item.name for part in parts for item in part]
    assert len(names) == len(set(names)) == 103
    assert {sum("training" in item.marks for item in part) for part in parts} == {2}
    assert all("training" in item.marks for part in parts for item in part[:2]), "trainings run first"


def test_what_may_take_long_runs_before_other_trainings_and_before_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [item.name for item in chosen(monkeypatch, 3, 5)]
    assert sorted(names[:2]) == ["training 13", "training 3"]
    assert names[4] == "other 43"


def test_the_order_of_a_slice_is_the_same_for_a_commit_and_differs_between_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, again, other = (chosen(monkeypatch, 3, 4, order) for order in "aab")
    assert first == again != other
    assert sorted(item.name for item in first) == sorted(item.name for item in other)


@pytest.mark.parametrize("text", ["", "3", "10/10", "-1/10", "a/b", "1/0", "3/10/2"])
def test_a_slice_that_is_no_part_of_a_whole_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="expected K/N with 0 <= K < N"):
        Turn.parse(text)
    assert Turn.parse("9/10") == Turn(9, 10)


def test_every_piece_of_the_nightly_has_a_turn_or_consists_of_marked_tests() -> None:
    taken = [name for number in range(SLICES) for name in Turn(number, SLICES).pieces()]
    assert sorted([*taken, *BY_SLICES, *WHOLE_BY_NIGHT]) == sorted(PIECES)
    assert set(MARKED) <= set(PARTS)


def test_tests_that_no_slice_runs_exist_and_have_a_reason() -> None:
    for test, reason in ONLY_BY_NIGHT.items():
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text()
        assert reason


def line(*minutes: int) -> list[Commit]:
    """Commits one after the other at these times, the newest first."""
    made = [Commit(f"c{n}", minute * MINUTE, (f"c{n - 1}",) if n else ()) for n, minute in enumerate(minutes)]
    return made[::-1]


def test_a_commit_after_which_it_was_quiet_is_a_landing() -> None:
    assert [commit.name for commit in history.landings(line(0, 20, 80, 100, 200))] == ["c3", "c1"]


def test_the_newest_commit_is_no_landing_and_short_pauses_are_none() -> None:
    assert list(history.landings(line(0))) == []
    assert list(history.landings(line(0, 44, 88))) == []
    assert QUIET_S == 45 * MINUTE


def test_pauses_within_a_branch_and_beside_another_are_no_landings() -> None:
    """base (0) - left (60) - merge (200)
    base (0) - right (10) - rightmost (190) -'
    """
    merge = Commit("merge", 200 * MINUTE, ("left", "rightmost"))
    branches = [
        Commit("rightmost", 190 * MINUTE, ("right",)),
        Commit("right", 10 * MINUTE, ("base",)),
        Commit("left", 60 * MINUTE, ("base",)),
        Commit("base", 0, ("before",)),
        Commit("before", -60 * MINUTE, ()),
    ]
    assert [commit.name for commit in history.landings([merge, *branches])] == ["before"]


def test_landings_in_a_row_take_all_slices() -> None:
    minutes = [60 * n for n in range(SLICES + 1)]
    counts = [len([*history.landings(line(*minutes[: n + 1]))]) % SLICES for n in range(SLICES)]
    assert sorted(counts) == list(range(SLICES))


@dataclass
class Steps:
    """What has begun, with its limit in minutes. Each takes `longer_min` more than that, and the wheel fails."""

    longer_min: float = 0.0
    now_s: float = 0.0
    begun: list[tuple[str, float]] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_s

    def step(self, name: str, limits: Limits) -> PartResult:
        self.begun.append((name, round(limits.minutes, 1)))
        self.now_s += MINUTE * (limits.minutes + self.longer_min)
        return PartResult(name != "wheel", "seen")

    def marked(self, _: list[str], turn: Turn, __: str, limits: Limits) -> PartResult:
        return self.step("changed" if turn == rotation.ALL else "slice", limits)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    monkeypatch.setattr(rotation, "time", made)
    monkeypatch.setattr(rotation, "marked", made.marked)
    monkeypatch.setattr(rotation, "PIECES", {name: partial(made.step, name) for name in PIECES})
    return made


def test_changed_tests_run_first_and_each_step_keeps_time_for_the_others(steps: Steps) -> None:
    assert rotation.run(Turn(0, 10), ["tests/test_it.py"], "c0ffee00") == 1, "the wheel failed"
    pieces = [("wheel", 1.3), ("pythons:agent-3.12", 1.3), ("elections:seeds", 1.3)]
    assert steps.begun == [("changed", 4.0), ("slice", 7.0), *pieces]


def test_what_would_begin_too_late_is_not_begun_and_is_no_failure(
    steps: Steps, capsys: pytest.CaptureFixture[str]
) -> None:
    steps.longer_min = 4.0
    assert rotation.run(Turn(0, 10), [], "c0ffee00") == 0
    assert steps.begun == [("slice", 11.0)]
    assert "== wheel: passed in part: not begun: no time was left" in capsys.readouterr().out
