"""Which points of a series are kept, and which a later file hides."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.rooms.metrics.folder import MOST_POINTS, Series, spread
from tests.fuzz import cases


def steps(series: Series) -> list[int]:
    return [step for step, _, _ in series.points()]


def test_of_a_long_series_points_are_kept_evenly_and_the_last_always() -> None:
    series = Series()
    for step in range(100_001):
        series.add("a", (step, float(step), 0.0))
    found = steps(series)
    assert MOST_POINTS <= len(found) <= 2 * MOST_POINTS + 1
    assert (found[0], found[-1], series.count) == (0, 100_000, 100_001)
    between = {later - earlier for earlier, later in itertools.pairwise(found[:-1])}
    assert between == {64}


def test_a_later_file_hides_what_is_not_before_its_first_step() -> None:
    series = Series()
    for step in range(10):
        series.add("a", (step, float(step), 1.0))
    for step in range(6, 12):
        series.add("b", (step, 100.0 + step, 2.0))
    assert [(step, value) for step, _, value in series.points()] == [
        *((step, 1.0) for step in range(6)),
        *((step, 2.0) for step in range(6, 12)),
    ]
    assert series.count == 12


def test_overlapping_writers_both_contribute_later_points() -> None:
    series = Series()
    for step in range(10):
        series.add("a", (step, float(step), 1.0))
    series.add("b", (0, 4.5, 2.0))
    assert steps(series) == [0, *range(5, 10)]


def test_a_start_hides_points_and_the_last_one_among_them() -> None:
    series = Series()
    for step in range(5000):
        series.add("a", (step, float(step), 1.0))
    series.hide(3000, 1e9)
    assert max(steps(series)) < 3000
    assert abs(series.count - 3000) < 10
    series.add("a", (3000, 2e9, 2.0))
    assert steps(series)[-1] == 3000


@cases
@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 30))
def test_a_spread_keeps_order_and_the_last(numbers: list[int], most: int) -> None:
    points = [(number, 0.0, 0.0) for number in numbers]
    found = spread(points, most)
    assert len(found) == min(most, len(points))
    assert found[-1:] == points[-1:]


@cases
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.floats(0, 10)), max_size=100))
def test_a_series_has_no_more_points_than_were_written(added: list[tuple[str, int, float]]) -> None:
    series = Series()
    for file, step, wall in added:
        series.add(file, (step, wall, 0.0))
    assert len(steps(series)) <= series.count + 1
    assert steps(series) == sorted(steps(series))
