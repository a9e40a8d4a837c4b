"""How long a silence before the first step is taken for work."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, Past
from dtctl.agent.records.spec import Member
from dtctl.agent.run.hangs import (
    GAPS,
    LEAST_LEARNT_S,
    has_never_hung,
    hung_in_a_row,
    is_judged_by_progress,
    is_waited_for,
    limit_of_first_step,
    limit_of_readiness,
    patience,
    trains_alone,
)


def past(step: int | None = None, **fields: Any) -> Past:
    return made(Past, attempt=1, started=0.0, ended=1.0, step=step, **{"asked": False, **fields})


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
def test_it_is_learnt_from_a_tasks_own_attempts_and_once_from_its_peers(
    entry: dict[str, Any], peers_s: float, stall_s: float | None, limit_s: float | None
) -> None:
    assert limit_of_first_step(made(Entry, **entry), peers_s, stall_s) == limit_s


def test_a_limit_doubles_with_each_time_that_it_was_in_vain_and_not_for_ever() -> None:
    assert [patience(300.0, count) for count in (0, 1, 2)] == [300.0, 600.0, 1200.0]
    assert patience(300.0, 10) == patience(300.0, 10_000)


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
def test_those_in_a_row_count_and_not_what_was_asked_to_end(history: list[Past], count: int) -> None:
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
def test_who_waits_for_whom_follows_from_the_strategy(
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
    assert limit_of_readiness(made(Entry, ready_s=ready_s), first_step_s, stall_s) == limit_s
