"""Curves as text: in dots of braille, or with letters where the terminal has no such characters or no colours."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

STYLES = ("cyan", "yellow", "magenta", "green", "red", "blue")
_MARKS = "*+ox#@"
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=*#"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a braille character (U+2800), by row and column."""
_LEAST_WIDTH = 10


@dataclass(frozen=True)
class Curve:
    """Its points by their steps; values that are no finite numbers are gaps."""

    label: str
    points: Sequence[tuple[float, float]]


Line = list[tuple[str, str]]
"""Text and style of each piece."""


def plot(curves: Sequence[Curve], width: int, height: int, *, log: bool = False, braille: bool = True) -> list[Line]:
    """A frame of so many columns and rows in all, with the curves in it; nothing when there is nothing to draw."""
    drawn = [[(step, _scaled(value, log=log)) for step, value in curve.points] for curve in curves]
    found = [point for points in drawn for point in points if point[1] is not None]
    if not found:
        return []
    values = [value for _, value in found if value is not None]
    low, high = min(values), max(values)
    first, last = min(step for step, _ in found), max(step for step, _ in found)
    labels = _labels(low, high, height - 2, log=log)
    margin = max(map(len, labels.values()))
    canvas = _Canvas(max(_LEAST_WIDTH, width - margin - 3), max(2, height - 2), braille=braille)
    for number, points in enumerate(drawn):
        canvas.draw(number, points, (first, last), (low, high))
    bar, corner, dash = ("│", "└", "─") if braille else ("|", "+", "-")
    lines: list[Line] = []
    for row, pieces in enumerate(canvas.rows()):
        lines.append([(f"{labels.get(row, ''):>{margin}} {bar}", "dim"), *pieces])
    left, right = f"{first:g}" if first != int(first) else str(int(first)), str(int(last))
    lines.append([(" " * margin + f" {corner}" + dash * canvas.width, "dim")])
    lines.append([(" " * (margin + 2) + left + right.rjust(canvas.width - len(left)), "dim")])
    return lines


def mark(number: int) -> str:
    """What a curve is drawn with where it is not in braille."""
    return _MARKS[number % len(_MARKS)]


def sparkline(values: Sequence[float], width: int, *, fine: bool = True) -> str:
    """A line of bars; what is no finite number is a gap."""
    bars = _BARS if fine else _ASCII_BARS
    some = _some(values, width)
    finite = [value for value in some if math.isfinite(value)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    across = high / 2 - low / 2  # the whole may be more than a number can hold
    return "".join(_bar(value, low, across, bars) if math.isfinite(value) else " " for value in some)


def _bar(value: float, low: float, across: float, bars: str) -> str:
    share = (value / 2 - low / 2) / across if across else 0.0
    return bars[min(len(bars) - 1, int(share * len(bars)))]


def _some(values: Sequence[float], most: int) -> Sequence[float]:
    if len(values) <= most:
        return values
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def _scaled(value: float, *, log: bool) -> float | None:
    if not math.isfinite(value) or (log and value <= 0):
        return None
    return math.log10(value) if log else value


def _labels(low: float, high: float, rows: int, *, log: bool) -> dict[int, str]:
    """By the row that they stand at."""
    shown = {rows - 1: low, rows // 2: high - (high / 2 - low / 2), 0: high}
    if low == high or rows < 3:
        shown = {rows - 1: low}
    return {row: f"{_unscaled(value) if log else value:.4g}" for row, value in shown.items()}


def _unscaled(exponent: float) -> float:
    try:
        return float(10**exponent)
    except OverflowError:  # of the largest number there is, the logarithm was rounded up
        return sys.float_info.max


class _Canvas:
    """Dots, each in the character of its place: 2 by 4 of them in one of braille, one in any other."""

    def __init__(self, width: int, height: int, *, braille: bool) -> None:
        self.width = width
        self._height = height
        self._across, self._down = (2, 4) if braille else (1, 1)
        self._braille = braille
        self._cells: dict[tuple[int, int], tuple[int, int]] = {}
        """Row and column -> dots, and the curve that was drawn there last."""

    def draw(
        self,
        number: int,
        points: Sequence[tuple[float, float | None]],
        steps: tuple[float, float],
        values: tuple[float, float],
    ) -> None:
        before: tuple[int, int] | None = None
        for step, value in points:
            if value is None:
                before = None
                continue
            x = _place(step, *steps, self.width * self._across)
            y = self._height * self._down - 1 - _place(value, *values, self._height * self._down)
            for dot in _line(before or (x, y), (x, y)):
                self._dot(number, *dot)
            before = (x, y)

    def rows(self) -> Iterator[Line]:
        for row in range(self._height):
            yield [self._cell(row, column) for column in range(self.width)]

    def _dot(self, number: int, x: int, y: int) -> None:
        place = y // self._down, x // self._across
        dots = self._cells.get(place, (0, 0))[0]
        self._cells[place] = dots | _DOTS[y % self._down][x % self._across], number

    def _cell(self, row: int, column: int) -> tuple[str, str]:
        if (row, column) not in self._cells:
            return " ", ""
        dots, number = self._cells[row, column]
        return (chr(0x2800 + dots) if self._braille else mark(number)), STYLES[number % len(STYLES)]


def _place(value: float, low: float, high: float, size: int) -> int:
    across = high / 2 - low / 2
    return round((value / 2 - low / 2) / across * (size - 1)) if across else 0


def _line(begin: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The dots from one to the other."""
    count = max(abs(end[0] - begin[0]), abs(end[1] - begin[1]), 1)
    for index in range(count + 1):
        yield (
            begin[0] + round((end[0] - begin[0]) * index / count),
            begin[1] + round((end[1] - begin[1]) * index / count),
        )
