"""Scalars as curves and lines: within their frame, whatever the values are, and safe for whoever opens them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.operations.metrics import Metrics, Point, Series
from dtctl.render.machine.metrics import point
from dtctl.render.metrics import Curve, csv_line, line_of, plot, show_plots, show_table, sparkline
from tests.fuzz import cases


def series(*values: float, tag: str = "loss", name: str = "train") -> Series:
    points = tuple(Point(step, 1000.0 + step, value) for step, value in enumerate(values))
    return Series(tag, name, "a", "/data", points, len(values), min(values), max(values), 1100.0)


def found(*some: Series) -> Metrics:
    return Metrics("demo-1", some, {"a": ("/data",)})


def drawn(curves: list[Curve], **options: bool) -> list[str]:
    return ["".join(text for text, _ in line) for line in plot(curves, 40, 10, **options)]


def test_a_rising_curve_goes_from_the_lower_left_to_the_upper_right() -> None:
    lines = drawn([Curve("", [(step, float(step)) for step in range(100)])], braille=False)
    assert [line.index("*") for line in lines[:-2]] == sorted((line.index("*") for line in lines[:-2]), reverse=True)
    assert lines[0].startswith("  99 |")
    assert lines[-3].split() == ["0", "|***"]
    assert lines[-1].split() == ["0", "99"]


def test_a_log_scale_makes_decades_equal_and_leaves_out_what_is_not_above_zero() -> None:
    lines = drawn([Curve("", [(0, 100.0), (1, 10.0), (2, 1.0), (3, -1.0)])], log=True, braille=False)
    assert lines[0].split()[0] == "100"
    assert lines[4].split()[0] == "10"
    assert lines[7].split()[0] == "1"
    assert lines[-1].split() == ["0", "2"]


def test_what_is_no_number_is_a_gap_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert sparkline([0.0, math.nan, 1.0], 10) == "▁ █"
    assert plot([Curve("", [(0, math.nan)])], 40, 10) == []
    show_plots(found(series(0.5, math.nan, math.inf)), log=False)
    assert "train: nan at step 1, and 2 such points in all" in capsys.readouterr().out


@cases
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2**53), st.floats()), max_size=20), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_whatever_the_values_the_frame_keeps_its_form(
    curves: list[list[tuple[int, float]]], log: bool, braille: bool
) -> None:
    lines = drawn([Curve("", points) for points in curves], log=log, braille=braille)
    assert len(lines) in (0, 10)
    assert all(len(line) <= 60 for line in lines)
    assert all(len(sparkline([value for _, value in points], 16)) <= 16 for points in curves)


def test_the_table_has_a_row_for_each_tag_and_directory(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(found(series(1.0, 0.25), series(2.0, 0.5, name="validation")))
    head, train, validation = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["TAG", "RUN", "STEP", "LAST", "MIN", "MAX", "POINTS", "AGE", "CURVE", "WHERE"]
    assert train == ["loss", "train", "1", "0.25", "0.25", "1", "2", "1m39s", "█▁", "a:/data"]
    assert validation[:4] == ["loss", "validation", "1", "0.5"]


def test_lines_of_points() -> None:
    one = series(0.5)
    assert line_of(one, one.points[0]).split()[1:] == ["train", "loss", "step", "0", "0.5"]
    assert csv_line(one, one.points[0]) == "0,1000.0,loss,train,0.5\n"
    assert point(Point(3, 0.0, math.nan)) == {"step": 3, "time": "1970-01-01T00:00:00.000Z", "value": "nan"}


def test_a_tag_can_be_neither_a_formula_nor_another_line_of_csv() -> None:
    hostile = series(0.5, tag="=cmd|' /C calc'!A0\n1,2,3")
    assert csv_line(hostile, hostile.points[0]) == "0,1000.0,\"'=cmd|' /C calc'!A0\\n1,2,3\",train,0.5\n"
