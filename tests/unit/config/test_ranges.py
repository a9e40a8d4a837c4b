"""Names with ranges: what they stand for, and how they are folded back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.config.ranges import LIMIT, LONGEST, count, expand, expand_value, fold
from dtctl.errors import UsageError
from tests.fuzz import cases


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[1-4]", ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("[1-3,5]", ["1", "2", "3", "5"]),
        ("n[1,01]", ["n1", "n01"]),
        ("b,a[2-3],a1", ["b", "a2", "a3", "a1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[0-1].lan", ["n0.lan", "n1.lan"]),
        ("n[3]", ["n3"]),
        ("n[00-0]", ["n00"]),
    ],
)
def test_a_range_stands_for_names_in_the_order_written(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("", "'' has an empty name"),
        ("a,,b", "'a,,b' has an empty name"),
        ("n[1-2", "'n[1-2' has an unmatched bracket"),
        ("n1-2]", "'n1-2]' has an unmatched bracket"),
        ("n[]", "'n[]': '[]' is not a range"),
        ("n[a-b]", "'n[a-b]': '[a-b]' is not a range"),
        ("n[1-2-3]", "'n[1-2-3]': '[1-2-3]' is not a range"),
        ("n[1,]", "'n[1,]': '[1,]' is not a range"),
        ("n[4-1]", "'n[4-1]': the range 4-1 runs backwards"),
        ("n[1-010]", "'n[1-010]': the ends of 1-010 have different numbers of digits"),
        ("n[1-10001]", "'n[1-10001]' stands for more than 10000 names"),
        ("a[1-200]b[1-200]", "'a[1-200]b[1-200]' stands for more than 10000 names"),
        ("a[1-9000],b[1-9000]", "'a[1-9000],b[1-9000]' stands for more than 10000 names"),
        ("n[1-999999999999999999]", "'n[1-999999999999999999]' stands for more than 10000 names"),
    ],
)
def test_an_invalid_range_is_refused_with_a_reason(text: str, summary: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(text)
    assert caught.value.summary == summary


def test_what_is_long_is_shown_by_its_beginning() -> None:
    fits, longer = f"n[{'x' * 57}]", f"n[{'x' * 58}]"
    for text, shown in ((fits, fits), (longer, f"n[{'x' * 55}...")):
        with pytest.raises(UsageError, match="is not a range") as caught:
            expand(text)
        assert caught.value.summary.startswith(f"{shown!r}: '[x")


def test_as_many_names_and_characters_as_the_limits_say_are_not_too_many() -> None:
    assert len(expand("n[1-10000]")) == count("[1-5000],n[1-5000]") == LIMIT
    longest = "x" * (LONGEST // LIMIT - len("[1-10000]")) + "[1-10000]"
    assert count(longest) == LIMIT
    with pytest.raises(UsageError, match="stands for more than 10000 names"):
        count("x" + longest)


def test_a_value_that_stands_for_too_many_is_refused() -> None:
    assert len(expand_value("10.0.[0-99].[0-99]") or ()) == LIMIT
    for text in ("n[1-10001]", "n[1-999999999999999999]", "a[1-101]b[1-100]"):
        with pytest.raises(UsageError, match="stands for more than 10000 names"):
            expand_value(text)


def test_only_brackets_around_numbers_are_ranges_in_values() -> None:
    assert expand_value("10.0.0.2[1-3]") == ["10.0.0.21", "10.0.0.22", "10.0.0.23"]
    assert expand_value("hop-[1-2],gate") == ["hop-1,gate", "hop-2,gate"]
    assert expand_value("[fe80::1]") is None
    assert expand_value("hop-a,hop-b") is None


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gpu-1"], "gpu-1"),
        (["gpu-2", "gpu-1", "gpu-3", "gpu-1"], "gpu-[1-3]"),
        (["gpu-1", "gpu-3", "gpu-4"], "gpu-[1,3-4]"),
        (["n09", "n10", "n08"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["n099", "n100"], "n[099-100]"),
        (["ps-a", "gpu-1", "ps-b", "gpu-2"], "gpu-[1-2],ps-a,ps-b"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["gpu1-ib0", "gpu2-ib0"], "gpu[1-2]-ib0"),
        (["10.0.0.22", "10.0.0.21", "10.0.0.5"], "10.0.0.[5,21-22]"),
        (["a10", "a9"], "a[9-10]"),
        ([f"n{number}" for number in range(11)], "n[0-10]"),
    ],
)
def test_names_are_folded_as_cluster_tools_do(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def random_names(source: random.Random) -> set[str]:
    patterns = ("gpu-{}", "n{:02d}", "n{}", "rack{}-{}", "r{:03d}n{}", "{}", "ps", "10.0.{}.{}")
    return {
        source.choice(patterns).format(source.randrange(source.choice((3, 12, 120))), source.randrange(12))
        for _ in range(source.randrange(1, 60))
    }


@pytest.mark.parametrize("seed", range(200))
def test_folding_and_expanding_gives_the_same_names_each_once(seed: int) -> None:
    source = random.Random(seed)
    names = random_names(source)
    shuffled = source.sample(sorted(names), len(names))
    assert sorted(expand(fold(shuffled))) == sorted(names)
    assert fold(shuffled) == fold(names), "the order of the names must not matter"
    assert fold(expand(fold(names))) == fold(names)


@cases
@given(st.text(st.sampled_from("a1b09[]-,"), max_size=24))
def test_a_range_is_counted_as_it_is_expanded(text: str) -> None:
    try:
        names = expand(text)
    except UsageError:
        with pytest.raises(UsageError):
            count(text)
    else:
        assert count(text) == len(names)
