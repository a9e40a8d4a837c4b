"""Charts of loss and rate with axes, beside each other, where the screen has room for them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtctl.dataclass import dataclass
from dtctl.rooms.metrics.screen import Curve, on_log_scale, plot
from dtctl.rooms.top.model import Line

LEAST_ROWS = 8
MOST_ROWS = 12
"""Rows of a chart with its title and its axis: six to ten of them are drawn in."""

_LEAST_COLUMNS = 30
_GAP = 2

FROM_ZERO = ("steps/s",)
"""Charts whose axis begins at 0, so that small changes stay small."""

Values = Sequence[tuple[float, float]]
"""The place of a value, and the value."""


@dataclass(frozen=True)
class Series:
    """Values under a name. `now`: the figure that the whole screen shows for it; empty if there is none."""

    name: str
    values: Values
    now: str = ""


def charts(named: Sequence[Series], width: int, rows: int, *, fine: bool = True) -> list[Line]:
    """The charts in this many rows, each under its name and its figure; empty without a curve to draw."""
    shown = [one for one in named if _moves(one.values)]
    if not shown or rows < LEAST_ROWS or width < _LEAST_COLUMNS:
        return []
    shown = shown[: max(1, width // _LEAST_COLUMNS)]
    wide = (width - _GAP * (len(shown) - 1)) // len(shown)
    each = [_chart(one, wide, rows, fine=fine) for one in shown]
    return [_beside([chart[row] if row < len(chart) else [] for chart in each], wide) for row in range(rows)]


def _moves(values: Values) -> bool:
    return sum(math.isfinite(value) for _, value in values) > 1


def _chart(series: Series, width: int, rows: int, *, fine: bool) -> list[Line]:
    name, values = series.name, series.values
    log = name not in FROM_ZERO and on_log_scale(value for _, value in values)
    title: Line = [
        (name, "bold"),
        (f" {series.now}" if series.now else "", "cyan"),
        ("  log scale" if log else "", "dim"),
    ]
    from_zero = [Curve("", [(values[0][0], 0.0)])] if name in FROM_ZERO else []
    return [title, *plot([Curve(name, values), *from_zero], width, rows - 1, log=log, braille=fine)]


def _beside(parts: Sequence[Line], width: int) -> Line:
    line: Line = []
    for number, part in enumerate(parts):
        line += part
        if number < len(parts) - 1:
            line.append((" " * max(0, width + _GAP - sum(len(text) for text, _ in part)), ""))
    return line
