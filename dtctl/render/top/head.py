"""The first lines of the screen: the answer, as `dtctl status` begins with it, and how loss and rate have moved."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtctl.operations.asking.outcome import Outcome
from dtctl.operations.scalars.reading import Point
from dtctl.render.status import OUTCOME_STYLE, SEPARATOR, in_short
from dtctl.render.top.columns import curve
from dtctl.render.top.course import Courses, rates_of
from dtctl.render.top.moment import Line, Moment, safe
from dtctl.render.words import duration

CURVE = 40
"""The most characters of a curve of the run."""

_LEAST = 8


def answer(moment: Moment) -> Line:
    """Run, outcome, step, rate, end, loss, checkpoint."""
    status = moment.status_now
    record, verdict = status.record, status.verdict
    running = verdict.outcome is Outcome.RUNNING
    age = f" {duration(status.time - record.created)}" if record.created and running else ""
    line = [
        (safe(record.run or record.cluster), "bold"),
        (": ", ""),
        (verdict.outcome.value, OUTCOME_STYLE.get(verdict.outcome, "")),
        (age, ""),
    ]
    return [*line, *((safe(f"{SEPARATOR}{words}"), "") for words in in_short(status))]


def curves(courses: Courses, points: Sequence[Point], width: int, *, fine: bool = True) -> Line:
    """Loss and rate: those of the event files from the beginning of the run, else since somebody looks."""
    losses = [point.value for point in points] if len(points) > 1 else courses.run_loss.values
    rates = rates_of(points) if len(points) > 2 else courses.run_rate.values
    shown = [one for one in (("loss", losses, False), ("rate", rates, True)) if _moves(one[1])]
    line: Line = []
    for name, values, from_zero in shown:
        label = f"{name} {_ends(values)} "
        room = min(CURVE, (width - 2 * (len(shown) - 1)) // len(shown) - len(label))
        if room >= _LEAST:
            line += [
                ("  " if line else "", ""),
                (label, "dim"),
                (curve(_spread(values, room), room, fine=fine, from_zero=from_zero), "cyan"),
            ]
    return line


def _moves(values: Sequence[float]) -> bool:
    return sum(map(math.isfinite, values)) > 1


def _ends(values: Sequence[float]) -> str:
    """The first and the last: between them the curve lies."""
    finite = [value for value in values if math.isfinite(value)]
    return f"{finite[0]:.3g} to {finite[-1]:.3g}"


def _spread(values: Sequence[float], most: int) -> list[float]:
    """As many as there is room for: the middle of each group, so that one outlier does not stand for its neighbours."""
    if len(values) <= most:
        return list(values)
    groups = [values[index * len(values) // most : (index + 1) * len(values) // most] for index in range(most)]
    return [_mean([value for value in group if math.isfinite(value)]) for group in groups]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
