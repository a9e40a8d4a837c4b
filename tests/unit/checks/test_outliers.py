"""When a figure stands out."""

from __future__ import annotations

import pytest

from dtctl.operations.checks.speed import SHARE, least_usual

BUSY = [429.0, 670.0, 1292.0, 430.0, 1497.0, 811.0, 796.0]
"""MB a second, as seven hosts of one machine sent them at a load of 28; an eighth behind 80 Mbit/s sent 9.6."""


def test_among_figures_that_are_alike_less_than_four_fifths_stands_out() -> None:
    assert least_usual([100.0, 101.0, 99.0]) == pytest.approx(SHARE * 100)
    assert least_usual([100.0]) == pytest.approx(80)


def test_another_one_that_is_slow_does_not_hide_it() -> None:
    assert least_usual([100.0, 10.0, 101.0, 99.0, 100.0]) == pytest.approx(80)


def test_where_all_differ_much_only_what_is_far_off_stands_out() -> None:
    assert 9.6 < least_usual(BUSY) < min(BUSY)
    assert all(figure >= least_usual([one for one in BUSY if one != figure]) for figure in BUSY)


def test_where_nothing_was_measured_nothing_stands_out() -> None:
    assert least_usual([0.0, 0.0]) == 0.0
