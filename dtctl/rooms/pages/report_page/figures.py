"""Curves of scalars over their steps: a figure for each tag, with a curve for each directory that has it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from dtctl.dataclass import dataclass
from dtctl.model import grouped
from dtctl.render.format import local_time, without_prefix
from dtctl.rooms.metrics.operation import Point, Series
from dtctl.rooms.metrics.screen import names, sparkline
from dtctl.rooms.pages.report import Report
from dtctl.rooms.pages.report.logged import NAME as LOG
from dtctl.rooms.pages.report_page.axes import Axis, axis_of, short, step_axis

MOST_FIGURES = 40
MOST_CURVES = 6
MOST_READINGS = 32
"""The most steps of a figure whose values can be read from it."""
MOST_MARKS = 20
CURVE_WIDTH = 24

_FIRST = ("loss", "steps/s", "global_step/sec")


@dataclass(frozen=True)
class Reading:
    """The values at a step. `begin` and `end`: the part of the width, from 0 to 1, in which they are shown."""

    begin: float
    end: float
    text: str


@dataclass(frozen=True)
class Mark:
    """Something that happened, at a point of an axis from 0 to 1."""

    at: float
    text: str


@dataclass(frozen=True)
class Figure:
    """The curves of one tag. `lines`: each point between 0 and 1 in both directions; `texts`: each of them as text."""

    tag: str
    lines: Sequence[Sequence[tuple[float, float | None]]]
    labels: Sequence[str]
    texts: Sequence[str]
    steps: Axis
    values: Axis
    readings: Sequence[Reading]
    marks: Sequence[Mark]

    @property
    def described(self) -> str:
        return "; ".join(self.labelled) if len(self.texts) > 1 else self.texts[0]

    @property
    def labelled(self) -> list[str]:
        return [f"{label}: {text}" for label, text in zip(self.labels, self.texts, strict=True)]

    @property
    def value_ticks(self) -> list[tuple[float, str]]:
        return _named(self.values)

    @property
    def step_ticks(self) -> list[tuple[float, str]]:
        return _named(self.steps)


def _named(axis: Axis) -> list[tuple[float, str]]:
    """The place and the text of each tick."""
    return [(place, short(tick)) for tick in axis.ticks if (place := axis.place(tick)) is not None]


def figures(by_tag: Mapping[str, Sequence[Series]], restarts: Sequence[tuple[float, str]] = ()) -> list[Figure]:
    """`restarts`: the time of each in epoch seconds, and what to say of it."""
    shown = list(by_tag.items())[:MOST_FIGURES]
    return [_figure(name, several[:MOST_CURVES], restarts) for name, several in shown]


def tags(report: Report, without: Iterable[str] = ()) -> dict[str, list[Series]]:
    """The series of each tag that has a point, in the order to show them; `without`: tags that are shown elsewhere."""
    found = _by_tag([*report.scalars.series, *report.logged, *report.rates])
    return {tag: series for tag, series in found.items() if tag not in {*without}}


def tags_of_runs(runs: Mapping[str, Iterable[Series]]) -> dict[str, list[Series]]:
    """The same for several runs, with a series for each run that has the tag: without the words that all runs begin
    with, and without the directory where all are in the same.
    """
    short = dict(zip(runs, without_prefix([*runs])[1], strict=True))
    named = grouped((one.tag, one.name) for series in runs.values() for one in series)

    def label(run: str, one: Series) -> str:
        is_plain = one.name in (".", "train", LOG) or len(set(named[one.tag])) == 1
        return short[run] if is_plain else f"{short[run]} {one.name}"

    return _by_tag(dataclasses.replace(one, name=label(run, one)) for run, series in runs.items() for one in series)


def restarts_of(report: Report) -> list[tuple[float, str]]:
    """The time of each restart, and what to say of it, oldest first; of very many the newest."""
    found = [
        (one.begin, f"{line.task} restarted at {local_time(one.begin, '%H:%M:%S')} (attempt {one.number})")
        for line in report.timeline.tasks
        for one in line.attempts
        if one.number > 1
    ]
    return sorted(found)[-MOST_MARKS:]


def _by_tag(series: Iterable[Series]) -> dict[str, list[Series]]:
    """The series by tag, losses and rates first."""
    found = grouped((one.tag, one) for one in series if one.points)
    return dict(sorted(found.items(), key=lambda item: (_place(item[0]), item[0])))


def curve_rows(report: Report) -> list[list[str]]:
    """The tag, directory, curve in one line, and description of each series."""
    rows = [
        [tag, label, sparkline([point.value for point in one.points], CURVE_WIDTH), as_text(one)]
        for tag, several in tags(report).items()
        for label, one in zip(names(several), several, strict=True)
    ]
    return rows[:MOST_FIGURES]


def as_text(series: Series) -> str:
    """A series as text: from 2.31 at step 0 to 0.041 at step 2000, at least 0.039, at most 2.31"""
    first, last = series.points[0], series.points[-1]
    text = f"from {number(first.value)} at step {first.step} to {number(last.value)} at step {last.step}"
    values = [point.value for point in series.points if math.isfinite(point.value)]
    least = series.least if series.least is not None else min(values, default=None)
    most = series.most if series.most is not None else max(values, default=None)
    if least is None or most is None:
        return f"{text}, with no finite number among its values"
    return f"{text}, at least {number(least)}, at most {number(most)}"


def number(value: float) -> str:
    return f"{value:.4g}"


def _figure(tag: str, shown: Sequence[Series], restarts: Sequence[tuple[float, str]]) -> Figure:
    points = [point for one in shown for point in one.points]
    steps = step_axis(min(point.step for point in points), max(point.step for point in points))
    values = axis_of(point.value for point in points)
    lines = [[(steps.place(point.step) or 0.0, values.place(point.value)) for point in one.points] for one in shown]
    texts, labels, marks = [as_text(one) for one in shown], names(shown), _marks(shown, steps, restarts)
    return Figure(tag, lines, labels, texts, steps, values, _readings(shown, labels, steps, marks), marks)


def _readings(shown: Sequence[Series], labels: Sequence[str], axis: Axis, marks: Sequence[Mark]) -> list[Reading]:
    """The values at up to MOST_READINGS steps of the series with the most points, and what happened there."""
    fullest = max(shown, key=lambda one: len(one.points)).points
    apart = max(1, math.ceil(len(fullest) / MOST_READINGS))
    chosen = sorted({point.step for point in fullest[::-1][::apart]})
    places = [axis.place(step) or 0.0 for step in chosen]
    ends = [*((place + after) / 2 for place, after in itertools.pairwise(places)), 1.0]
    found = []
    for at, step in enumerate(chosen):
        values = [(label, _value_at(one.points, step)) for label, one in zip(labels, shown, strict=True)]
        named = [(label, number(value)) for label, value in values if value is not None]
        text = ", ".join(f"{label} {value}" if len(shown) > 1 else value for label, value in named)
        begin, end = ends[at - 1] if at else 0.0, ends[at]
        beside = [mark.text for mark in marks if begin <= mark.at < end or mark.at == end == 1.0]
        found.append(Reading(begin, end, "; ".join([f"step {step}: {text}", *beside])))
    return found


def _value_at(points: Sequence[Point], step: int) -> float | None:
    """The value of the last point up to this step."""
    at = bisect_right([point.step for point in points], step)
    return points[at - 1].value if at else None


def _marks(shown: Sequence[Series], axis: Axis, restarts: Sequence[tuple[float, str]]) -> list[Mark]:
    """Each restart at the step up to which the training had come by then."""
    points = sorted((point for one in shown for point in one.points), key=lambda point: point.time)
    times = [point.time for point in points]
    found = []
    for time, text in restarts:
        at = bisect_right(times, time)
        if 0 < at < len(points) and (place := axis.place(points[at - 1].step)) is not None:
            found.append(Mark(place, text))
    return found


def searched(report: Report) -> str:
    """The directories in which event files were searched for."""
    return ", ".join(sorted({path for answer in report.scalars.answers.values() for path in answer["dirs"]})[:5])


def _place(name: str) -> int:
    if name in _FIRST:
        return _FIRST.index(name)
    return len(_FIRST) if "loss" in name.lower() else len(_FIRST) + 1
