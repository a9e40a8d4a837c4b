"""The first lines of the screen: the answer, as `dtctl status` begins with it, and how loss and rate have moved."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dtctl.operations.client.outcome import Outcome
from dtctl.operations.metrics import Point
from dtctl.render.status import OUTCOME_STYLE, SEPARATOR, in_short
from dtctl.render.top.columns import curve
from dtctl.render.top.history import Course, Courses, rates_of
from dtctl.render.top.snapshot import Line, Moment, safe
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


Values = list[tuple[float, float]]
"""Where a value stands, and the value."""


def curves(courses: Courses, points: Sequence[Point], width: int, *, fine: bool = True) -> Line:
    """Loss and rate: those of the event files from the beginning of the run, else since somebody looks."""
    losses = [(float(one.step), one.value) for one in points] if len(points) > 1 else _in_order(courses.run_loss)
    rates = rates_of(points) if len(points) > 2 else _in_order(courses.run_rate)
    shown = [one for one in (("loss", losses, False), ("rate", rates, True)) if _moves(one[1])]
    line: Line = []
    for name, values, from_zero in shown:
        label = f"{name} {_ends(values)} "
        room = min(CURVE, (width - 2 * (len(shown) - 1)) // len(shown) - len(label))
        if room >= _LEAST:
            drawn = curve(spread(values, room), room, fine=fine, from_zero=from_zero)
            line += [("  " if line else "", ""), (label, "dim"), (drawn, "cyan")]
    return line


def _in_order(course: Course) -> Values:
    return [(float(place), value) for place, value in enumerate(course.values)]


def _moves(values: Values) -> bool:
    return sum(math.isfinite(value) for _, value in values) > 1


def _ends(values: Values) -> str:
    """The first and the last: between them the curve lies."""
    finite = [value for _, value in values if math.isfinite(value)]
    return f"{finite[0]:.3g} to {finite[-1]:.3g}"


def spread(values: Values, most: int) -> list[float]:
    """As many as there is room for: the mean of those that stand in each part, and where none does the one before."""
    if len(values) <= most:
        return [value for _, value in values]
    first, last = min(place for place, _ in values), max(place for place, _ in values)
    parts: list[list[float]] = [[] for _ in range(most)]
    for place, value in values:
        if math.isfinite(value):
            parts[min(most - 1, int((place - first) / ((last - first) or 1.0) * most))].append(value)
    found: list[float] = []
    for part in parts:
        found.append(math.fsum(part) / len(part) if part else (found[-1] if found else math.nan))
    return found
