"""Who measures whom, and what that means for a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import made
from dtctl.agent.records.network import Measured
from dtctl.operations.checks.network.exchange import least_step_s, rounds, summed
from tests.fuzz import cases


@cases
@given(st.integers(1, 40), st.integers(1, 12))
def test_no_host_measures_or_is_measured_twice_at_the_same_time(workers: int, servers: int) -> None:
    sources = [f"w{number}" for number in range(workers)]
    told = rounds(sources, [f"p{number}" for number in range(servers)])
    for pairs in told:
        hosts = [host for pair in pairs for host in pair]
        assert len(set(hosts)) == len(hosts)
    everything = [pair for pairs in told for pair in pairs]
    assert len(set(everything)) == len(everything)


def test_a_host_does_not_measure_itself() -> None:
    assert rounds(["a", "b"], ["a"]) == ((("b", "a"),),)


def test_pairs_that_have_no_host_in_common_are_measured_together() -> None:
    first, second, third = (
        (("a", "p"), ("b", "q")),
        (("c", "p"), ("a", "q")),
        (("b", "p"), ("c", "q")),
    )
    assert rounds(["a", "b", "c"], ["p", "q"]) == (first, second, third)
    assert rounds(["a", "b", "c"], ["p", "q"], most=2) == (first, second)
    assert rounds(["a", "b", "c"], ["p", "q"], most=1) == (first,)


def test_each_source_measures_no_more_targets_than_there_are_rounds() -> None:
    assert rounds(["a"], ["p", "q", "r"], most=2) == ((("a", "p"),), (("a", "q"),))


def test_a_source_has_as_many_turns_as_there_are_rounds_and_one_may_be_with_itself() -> None:
    assert rounds(["a", "b"], ["a", "c", "d"], most=1) == ((("b", "c"),),)


def one(latency_s: float | None, sent: float, received: float) -> Measured:
    return made(Measured, whose="ps:0", host="p", latency_s=latency_s, sent=sent, received=received)


def test_the_slower_direction_counts_and_the_slowest_pair_is_named() -> None:
    speed = summed(
        {("a", "p"): one(0.001, 1e9, 5e8), ("b", "p"): one(0.003, 1e8, 1e9), ("c", "p"): one(0.001, 1e9, 1e9)}
    )
    assert speed is not None
    assert (speed.slowest, speed.slowest_bytes_s, speed.farthest) == (("b", "p"), 1e8, ("b", "p"))
    assert (speed.latency_s, speed.bytes_s) == (0.001, 5e8)


def test_a_step_waits_twice_for_the_way_and_the_bytes() -> None:
    speed = summed({("a", "p"): one(0.0002, 1e9, 1e9)})
    assert speed is not None
    assert least_step_s(speed, 82_000) == pytest.approx(2 * (0.0002 + 0.000082))


def test_nothing_measured_is_nothing_told() -> None:
    assert summed({}) is None
    assert summed({("a", "p"): one(None, 1e9, 1e9)}) is None
    assert summed({("a", "p"): one(0.1, 0.0, 1e9)}) is None
    assert summed({("a", "p"): one(0.1, 1e9, 0.0)}) is None


def test_a_pair_of_which_a_figure_is_missing_counts_with_the_other() -> None:
    speed = summed({("a", "p"): one(0.5, 0.0, 0.0), ("b", "p"): one(None, 1e9, 2e9), ("c", "p"): one(0.1, 4e9, 3e9)})
    assert speed is not None
    assert (speed.pairs, speed.slowest, speed.farthest, speed.farthest_s) == (2, ("b", "p"), ("a", "p"), 0.5)
    assert (speed.latency_s, speed.bytes_s, speed.slowest_bytes_s) == (0.5, 3e9, 1e9)
