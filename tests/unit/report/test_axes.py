"""The ticks of charts: four or five round numbers, a log scale over three decades, and local times."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dtctl.rooms.pages.report_page.axes import axis_of, short, step_axis, time_axis
from tests.fuzz import cases

NUMBERS = st.floats(min_value=-1e12, max_value=1e12).filter(lambda value: value == 0 or abs(value) > 1e-12)


@cases
@given(st.lists(NUMBERS, min_size=1, max_size=5))
def test_any_values_get_four_or_five_ticks_within_the_axis(values: list[float]) -> None:
    axis = axis_of(values)
    assert 4 <= len(axis.ticks) <= 5
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)
    assert all(axis.place(value) is not None for value in values if not (axis.is_log and value <= 0))


def test_positive_values_over_three_decades_get_a_log_scale() -> None:
    axis = axis_of([0.0004, 2.3])
    assert axis.is_log
    assert [short(tick) for tick in axis.ticks] == ["0.001", "0.01", "0.1", "1"]
    middle = axis.place(math.sqrt(0.0004 * 2.3))
    assert middle is not None
    assert math.isclose(middle, 0.5)


def test_a_loss_of_two_decades_and_one_that_reaches_zero_get_a_linear_scale() -> None:
    assert not axis_of([0.02, 2.0]).is_log
    assert not axis_of([0.0, 1e-6, 2.0]).is_log
    assert [short(tick) for tick in axis_of([0.03, 2.3]).ticks] == ["0.5", "1", "1.5", "2"]


def test_values_that_are_no_numbers_have_no_place() -> None:
    axis = axis_of([1.0, math.nan, math.inf])
    assert axis.place(math.nan) is None
    assert axis_of([math.nan]).ticks == ()


def test_ticks_of_steps_are_whole_numbers_up_to_the_last_step() -> None:
    assert step_axis(0, 2000).ticks == [0, 500, 1000, 1500, 2000]
    assert step_axis(0, 3).ticks == [0, 1, 2, 3]
    assert step_axis(7, 7).ticks == (7,)
    assert (short(20_000), short(1_500_000)) == ("20k", "1.5M")


def test_ticks_of_times_are_at_round_local_times() -> None:
    hour = 3600
    assert time_axis(0, 4 * hour, 0.5 * hour).ticks == [0.5 * hour, 1.5 * hour, 2.5 * hour, 3.5 * hour]
