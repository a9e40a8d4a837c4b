"""The axes of charts: their range, and four or five round numbers on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dtctl.dataclass import dataclass
from dtctl.render.format import share

MOST_TICKS = 5
LEAST_TICKS = 4
LOG_DECADES = 3.0
"""The span of positive values from which on the axis is logarithmic."""

_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_OF_TIME_S = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(3600 * hours for hours in (1, 2, 3, 6, 12)),
    *(86400 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)


@dataclass(frozen=True)
class Axis:
    """A range of values with its ticks, in ascending order."""

    low: float
    high: float
    ticks: Sequence[float]
    is_log: bool = False

    def place(self, value: float) -> float | None:
        """The position of a value, from 0 to 1; None if it has none."""
        if not math.isfinite(value) or (self.is_log and value <= 0):
            return None
        ends = (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)
        return min(1.0, max(0.0, share(math.log10(value) if self.is_log else value, *ends, 0.5)))


def axis_of(values: Iterable[float]) -> Axis:
    """An axis for these values; those that are not finite have no place on it."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return Axis(0.0, 1.0, ())
    low, high = min(finite), max(finite)
    if low > 0 and math.log10(high) - math.log10(low) >= LOG_DECADES:
        return _log_axis(low, high)
    if not math.isfinite(high - low):
        return Axis(low, high, (low, high))
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        apart = 0.5 * abs(low) or 1.0
        low, high = low - apart, high + apart
    return _linear_axis(low, high)


def _linear_axis(low: float, high: float) -> Axis:
    ticks = _ticks(low, high)
    by = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    while len(ticks) < LEAST_TICKS:  # the end that is nearer to its next tick is moved there
        below, above = ticks[0] - by, ticks[-1] + by
        if low - below <= above - high:
            low, ticks = below, [below, *ticks]
        else:
            high, ticks = above, [*ticks, above]
    ticks = [0.0 if abs(tick) < 1e-9 * by else tick for tick in ticks]
    return Axis(min(low, ticks[0]), max(high, ticks[-1]), ticks)


def _log_axis(low: float, high: float) -> Axis:
    begin, end = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    if end - begin + 1 < LEAST_TICKS:
        begin, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    by = math.ceil((end - begin + 1) / MOST_TICKS)
    exponents = [*range(begin, end + 1, by)]
    while len(exponents) < LEAST_TICKS:
        exponents.append(exponents[-1] + by)
    ticks = [_power(exponent) for exponent in exponents]
    return Axis(min(low, ticks[0]), max(high, ticks[-1]), ticks, is_log=True)


def _power(exponent: int) -> float:
    return float(f"1e{max(-307, min(308, exponent))}")


def step_axis(first: int, last: int) -> Axis:
    """An axis of steps, which are whole numbers; it ends where they do."""
    if first == last:
        return Axis(first, last, (first,))
    return Axis(first, last, _ticks(first, last, whole=True))


def time_axis(begin: float, end: float, offset_s: float) -> Axis:
    """An axis of epoch seconds. `offset_s`: of the local time from UTC, so that ticks are at round local times."""
    span = max(end - begin, 1e-9)
    by = next((step for step in _OF_TIME_S if span / step < MOST_TICKS), _OF_TIME_S[-1])
    first = math.ceil((begin + offset_s) / by)
    last = math.floor((end + offset_s) / by)
    return Axis(begin, end, [number * by - offset_s for number in range(first, last + 1)][-MOST_TICKS - 1 :])


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """Multiples of the smallest round number of which at most MOST_TICKS are between the ends. `whole`: of a whole
    one.
    """
    power = math.floor(math.log10((high - low) / MOST_TICKS))
    for scale in (power, power + 1):
        for number in _ROUND:
            by = number * 10.0**scale
            if whole and not by.is_integer():
                continue
            first, last = math.ceil(low / by - 1e-9), math.floor(high / by + 1e-9)
            if last - first + 1 <= MOST_TICKS:
                return [float(f"{at * by:.12g}") for at in range(first, last + 1)]
    return [low, high]


def short(value: float) -> str:
    """A number of an axis in few characters: 0.25, 1e-05, 20k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size <= abs(value) < 1e13:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.4g}{letter}"
    return f"{value:.4g}"
