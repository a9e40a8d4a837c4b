"""Scalars over their steps: a figure for each tag, with a curve for each directory that has it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from dtctl.operations.metrics import Series
from dtctl.operations.report import Report
from dtctl.render.format import count
from dtctl.render.report.html import Html, curves, joined, scaled, tag

MOST_FIGURES = 40
MOST_CURVES = 6

_FIRST = ("loss", "steps/s", "global_step/sec")


def figures(report: Report) -> Html | None:
    """None where there is no scalar."""
    return _figures(tags(report))


def figures_of_runs(runs: Mapping[str, Iterable[Series]]) -> Html | None:
    """With a curve for each run that has the tag."""
    named = [
        dataclasses.replace(one, name=run if one.name in (".", "train") else f"{run} {one.name}")
        for run, series in runs.items()
        for one in series
    ]
    return _figures(_by_tag(named))


def _figures(by_tag: Mapping[str, Sequence[Series]]) -> Html | None:
    if not by_tag:
        return None
    shown = list(by_tag.items())[:MOST_FIGURES]
    left = len(by_tag) - len(shown)
    return joined(
        tag("div", [_figure(name, several) for name, several in shown], class_="curves"),
        tag("p", f"{count(left, 'other tag')} left out: dtctl metrics shows all.", class_="soft") if left else None,
    )


def tags(report: Report) -> dict[str, list[Series]]:
    """The series of each tag that has a point, in the order to show them."""
    return _by_tag([*report.scalars.series, *report.rates])


def _by_tag(series: Iterable[Series]) -> dict[str, list[Series]]:
    """Losses and rates first."""
    found: dict[str, list[Series]] = {}
    for one in series:
        if one.points:
            found.setdefault(one.tag, []).append(one)
    return dict(sorted(found.items(), key=lambda item: (_place(item[0]), item[0])))


def names(several: Sequence[Series]) -> list[str]:
    """Names that distinguish the series of one tag."""
    for name in (lambda one: one.name, lambda one: f"{one.host} {one.name}", lambda one: f"{one.host}:{one.directory}"):
        found = [name(one) for one in several]
        if len(set(found)) == len(found):
            return found
    return [f"{one.host}:{one.directory}/{one.name}" for one in several]


def as_text(one: Series) -> str:
    """From 2.31 at step 0 to 0.041 at step 2000, at least 0.039, at most 2.31"""
    first, last = one.points[0], one.points[-1]
    text = f"from {number(first.value)} at step {first.step} to {number(last.value)} at step {last.step}"
    values = [point.value for point in one.points if math.isfinite(point.value)]
    least = one.least if one.least is not None else min(values, default=None)
    most = one.most if one.most is not None else max(values, default=None)
    if least is None or most is None:
        return f"{text}, with no finite number among its values"
    return f"{text}, at least {number(least)}, at most {number(most)}"


def number(value: float) -> str:
    return f"{value:.4g}"


def _figure(name: str, several: Sequence[Series]) -> Html:
    shown = list(several)[:MOST_CURVES]
    points = [point for one in shown for point in one.points]
    values = [point.value for point in points if math.isfinite(point.value)]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    first, last = min(point.step for point in points), max(point.step for point in points)
    labels = names(shown)
    lines = [
        [(scaled(point.step, first, last) or 0.0, scaled(point.value, low, high)) for point in one.points]
        for one in shown
    ]
    described = "; ".join(
        (f"{label}: " if len(shown) > 1 else "") + as_text(one) for label, one in zip(labels, shown, strict=True)
    )
    ends = [number(high), number(low)] if values else []
    y = tag("div", [tag("span", end) for end in ends], class_="y axis", aria_hidden="true")
    x = tag("div", tag("span", f"step {first}"), tag("span", str(last)), class_="x axis", aria_hidden="true")
    plot = tag("div", y, curves(name, described, lines), x, class_="plot")
    return tag("figure", tag("h3", name), plot, tag("figcaption", _legend(labels, shown), class_="small"))


def _legend(labels: Sequence[str], shown: Sequence[Series]) -> Iterable[Html]:
    if len(shown) == 1:
        yield tag("p", as_text(shown[0]))
        return
    yield tag(
        "ul",
        [
            tag("li", _stroke(index), f"{label}: {as_text(one)}")
            for index, (label, one) in enumerate(zip(labels, shown, strict=True))
        ],
        class_="legend",
    )


def _stroke(index: int) -> Html:
    line = tag("path", d="M0 5L20 5", class_=f"k k{index % MOST_CURVES}")
    return tag("svg", line, viewBox="0 0 20 10", aria_hidden="true", focusable="false")


def _place(name: str) -> int:
    if name in _FIRST:
        return _FIRST.index(name)
    return len(_FIRST) if "loss" in name.lower() else len(_FIRST) + 1
