"""Goodput of a run whose logs tell no step, by the steps in the event files that its trainers write.

The coordinator, which reads logs alone, takes all the time in which tasks ran for their start: of each such time the
first point ends the start. A reader of event files drops the points that were written again after a rollback, so the
time from the last point before an interruption on is that of steps that were lost, and are done again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from dtctl.agent.run.goodput import STALL_GAPS, STALL_S
from dtctl.operations.client.outcome import Outcome
from dtctl.operations.report.values import Span

if TYPE_CHECKING:
    from dtctl.operations.metrics import Point, Series


def points_of(series: Iterable[Series]) -> list[Point]:
    """Those of the series that has the most, in the order of time."""
    fullest = max(series, key=lambda one: len(one.points), default=None)
    return sorted(fullest.points, key=lambda point: point.time) if fullest is not None else []


def with_points(spans: Sequence[Span], points: Sequence[Point], since: float, outcome: Outcome) -> list[Span]:
    """`spans` of an account without steps, divided by the points; their times are taken for those of one clock."""
    gaps = [after.time - before.time for before, after in pairwise(points)]
    limit_s = max(STALL_S, STALL_GAPS * median(gaps)) if gaps else STALL_S
    found: list[Span] = []
    for number, one in enumerate(spans):
        inside = [point for point in points if one.begin_s <= point.time - since <= one.end_s]
        if one.what != "start" or not inside:
            found.append(one)
        else:
            last = number + 1 == len(spans)
            found += _divided(one, [(point.time - since, point.step) for point in inside], limit_s, outcome, last=last)
    return found


def _divided(
    span: Span, points: Sequence[tuple[float, int]], limit_s: float, outcome: Outcome, *, last: bool
) -> Iterator[Span]:
    at, step = points[0]
    yield Span("start", span.begin_s, at, step)
    for (before, _), (after, reached) in pairwise(points):
        if after > before:
            yield Span("kept" if after - before <= limit_s else "stall", before, after, reached)
    at, step = points[-1]
    if span.end_s > at:
        yield Span(_rest(span.end_s - at, limit_s, outcome) if last else "again", at, span.end_s, step)


def _rest(seconds: float, limit_s: float, outcome: Outcome) -> str:
    if outcome is Outcome.SUCCEEDED:
        return "end"
    if seconds > limit_s:
        return "stall"
    return "unsaved" if outcome is Outcome.FAILED else "kept"
