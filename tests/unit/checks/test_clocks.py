"""By how much it is certain that a clock is off, and whose is told to be wrong."""

from __future__ import annotations

import pytest

from dtctl.operations.checks.machine import HERE, OFF_S, WRONG_S, apart, clock_findings, clock_words
from dtctl.operations.diagnosis.signature import Finding

RIGHT = (-0.01, 0.2)


@pytest.mark.parametrize(
    ("interval", "off"),
    [
        ((2.0, 3.0), 2.0),
        ((-3.0, -2.0), -2.0),
        ((-1.0, 1.0), 0.0),
        ((-1.0, 0.0), 0.0),
        ((0.0, 1.0), 0.0),
        ((5.0, 5.0), 5.0),
    ],
)
def test_a_clock_is_off_by_the_nearest_bound(interval: tuple[float, float], off: float) -> None:
    assert apart(interval, 0.0) == off
    assert apart((interval[0] + 7, interval[1] + 7), 7.0) == off


@pytest.mark.parametrize(
    ("interval", "words"),
    [
        ((-0.1, 0.1), "right"),
        ((0.9, 2.0), "right"),
        ((1.0, 2.0), "1 s ahead"),
        ((-9.0, -1.0), "1 s behind"),
        ((299.6, 400.0), "300 s ahead"),
    ],
)
def test_a_clock_is_told_against_this_machines(interval: tuple[float, float], words: str) -> None:
    assert clock_words(interval) == words


def found(**intervals: tuple[float, float]) -> list[tuple[object, ...]]:
    return [
        (one.signature.name, one.seen.hosts, one.seen.fields["off_s"], one.seen.fields["way"], others(one))
        for one in clock_findings(intervals)
    ]


def others(one: Finding) -> tuple[str, ...]:
    """With whom its hosts are compared."""
    here = one.seen.fields.get("here")
    return (*one.seen.fields["others"], *([here] if here else []))


@pytest.mark.parametrize(("off_s", "name"), [(OFF_S, "clock_off"), (59.0, "clock_off"), (WRONG_S, "clock_wrong")])
def test_a_clock_is_off_from_five_seconds_on_and_wrong_from_a_minute_on(off_s: float, name: str) -> None:
    others = ("a", "b", HERE)
    assert found(a=(0, 0), b=(0, 0), c=(off_s, off_s)) == [(name, ("c",), off_s, "ahead of", others)]
    assert found(a=(0, 0), b=(0, 0), c=(-off_s, -off_s)) == [(name, ("c",), off_s, "behind", others)]
    assert found(a=(0, 0), b=(0, 0), c=(OFF_S - 0.1, OFF_S)) == []


def test_one_host_is_told_to_differ_from_this_machine() -> None:
    assert found(a=(8.0, 8.0)) == [("clock_off", ("a",), 8.0, "ahead of", (HERE,))]
    assert found(a=(OFF_S - 0.1, 9.0)) == []


def test_of_two_hosts_the_one_that_differs_from_the_other_and_from_here_is_wrong() -> None:
    assert found(a=(0, 0), b=(8.0, 8.0)) == [("clock_off", ("b",), 8.0, "ahead of", ("a", HERE))]


def test_hosts_that_are_off_alike_are_told_together_and_are_no_others_of_anybody() -> None:
    told = found(a=(0, 0), b=(0, 0), c=(0, 0), d=(20.2, 21), e=(20.4, 21), f=(-300.0, -299.6))
    others = ("a", "b", "c", HERE)
    assert told == [
        ("clock_off", ("d", "e"), 20, "ahead of", others),
        ("clock_wrong", ("f",), 300, "behind", others),
    ]


def test_a_clock_that_is_just_off_speaks_for_nobody() -> None:
    told = found(a=(0, 0), b=(0, 0), c=(0, 0), d=(OFF_S, OFF_S), e=(90.0, 90.0))
    assert [one[-1] for one in told] == [("a", "b", "c", HERE)] * 2


def test_this_machine_is_told_as_such_whichever_way_it_is_off() -> None:
    assert found(a=(90.0, 90.0), b=(90.0, 90.0)) == [("clock_wrong_here", (), 90.0, "behind", ("a", "b"))]
    assert found(a=(-8.0, -8.0), b=(-8.0, -8.0)) == [("clock_wrong_here", (), 8.0, "ahead of", ("a", "b"))]
