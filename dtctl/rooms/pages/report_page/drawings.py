"""Drawings of pages: HTML from templates, scalars over their steps, and tasks over time.

Values in templates are text, and escaped: nothing that a host sends can become a tag. Texts are masked once more,
because the agent of an older run may have masked less than the current one. A report has a figure for each tag, with a
curve for each directory that has it; a lane for each task, and the same as a table.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records.reasons import sentence
from dtctl.dataclass import dataclass
from dtctl.model import TaskState, grouped
from dtctl.render.format import count, duration, local_time, share
from dtctl.render.terminal.safe import lines_of, one_line
from dtctl.rooms.metrics.operation import Series
from dtctl.rooms.metrics.screen import names, sparkline
from dtctl.rooms.pages.report import Report
from dtctl.rooms.pages.report.timeline import Attempt, Bar, TaskLine, Timeline, by_trouble

MOST_FIGURES = 40
MOST_CURVES = 6
CURVE_WIDTH = 24

_FIRST = ("loss", "steps/s", "global_step/sec")


@dataclass(frozen=True)
class Figure:
    """The curves of one tag. `lines`: each point between 0 and 1 in both directions; `texts`: each of them as text."""

    tag: str
    lines: Sequence[Sequence[tuple[float, float | None]]]
    labels: Sequence[str]
    texts: Sequence[str]
    steps: tuple[int, int]
    ends: Sequence[str]
    """The greatest and the least of its numbers."""

    @property
    def described(self) -> str:
        return "; ".join(self.labelled) if len(self.texts) > 1 else self.texts[0]

    @property
    def labelled(self) -> list[str]:
        return [f"{label}: {text}" for label, text in zip(self.labels, self.texts, strict=True)]


def figures(by_tag: Mapping[str, Sequence[Series]]) -> list[Figure]:
    return [_figure(name, several[:MOST_CURVES]) for name, several in list(by_tag.items())[:MOST_FIGURES]]


def tags(report: Report) -> dict[str, list[Series]]:
    """The series of each tag that has a point, in the order to show them."""
    return _by_tag([*report.scalars.series, *report.rates])


def tags_of_runs(runs: Mapping[str, Iterable[Series]]) -> dict[str, list[Series]]:
    """The same for several runs, with a series for each run that has the tag."""
    return _by_tag(
        dataclasses.replace(one, name=run if one.name in (".", "train") else f"{run} {one.name}")
        for run, series in runs.items()
        for one in series
    )


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


def _figure(name: str, shown: Sequence[Series]) -> Figure:
    points = [point for one in shown for point in one.points]
    values = [point.value for point in points if math.isfinite(point.value)]
    low, high = (min(values), max(values)) if values else (0.0, 0.0)
    first, last = min(point.step for point in points), max(point.step for point in points)
    lines = [
        [(scaled(point.step, first, last) or 0.0, scaled(point.value, low, high)) for point in one.points]
        for one in shown
    ]
    ends = [number(high), number(low)] if values else []
    return Figure(name, lines, names(shown), [as_text(one) for one in shown], (first, last), ends)


def searched(report: Report) -> str:
    """The directories in which event files were searched for."""
    return ", ".join(sorted({path for answer in report.scalars.answers.values() for path in answer["dirs"]})[:5])


def _place(name: str) -> int:
    if name in _FIRST:
        return _FIRST.index(name)
    return len(_FIRST) if "loss" in name.lower() else len(_FIRST) + 1


MOST_LANES = 100
MOST_ROWS = 500
_STATES = ("starting", "running", "backoff", "pending", "stalled", "succeeded", "failed", "stopped", "lost")


def lanes(report: Report) -> Sequence[TaskLine]:
    """The tasks with a lane; of many tasks, those that were restarted or have failed come first."""
    every = report.timeline.tasks
    return every if len(every) <= MOST_LANES else by_trouble(every, report.status.record.lead)[:MOST_LANES]


def states(lines: Iterable[TaskLine]) -> list[str]:
    """The states that occur, in the order of a legend."""
    there = {bar.state.value for one in lines for attempt in one.attempts for bar in attempt.bars}
    return [state for state in _STATES if state in there]


def bars(line: TaskLine, whole: Timeline) -> list[tuple[str, float, float, str]]:
    span = max(whole.end - whole.begin, 1e-9)
    return [
        (bar.state.value, (bar.begin - whole.begin) / span, (bar.end - whole.begin) / span, _hint(attempt, bar))
        for attempt in line.attempts
        for bar in attempt.bars
    ]


def axis(whole: Timeline) -> list[str]:
    form = "%H:%M:%S" if whole.end - whole.begin < 86400 else "%m-%d %H:%M"
    return [local_time(at, form) for at in (whole.begin, (whole.begin + whole.end) / 2, whole.end)]


def attempts(report: Report) -> list[list[str]]:
    """The lanes as text."""
    return [
        [
            *(str(line.task), line.host, str(attempt.number), local_time(attempt.begin), duration(_ran(attempt))),
            *(colored(state(line, attempt), attempt.state.value), sentence(attempt.why)),
        ]
        for line in report.timeline.tasks
        for attempt in line.attempts
    ]


def described(line: TaskLine) -> str:
    """A lane as text, for people who do not see it."""
    if not line.attempts:
        return "not started"
    parts = [
        f"attempt {one.number} {state(line, one)} {'after' if _is_over(line, one) else 'for'} {duration(_ran(one))}"
        for one in line.attempts[-20:]
    ]
    return ", ".join(parts)


def state(line: TaskLine, one: Attempt) -> str:
    """The final state of an attempt; "ended" if another attempt follows it or is awaited."""
    waits = one.state in (TaskState.PENDING, TaskState.BACKOFF)
    return "ended" if not one.state.final and (waits or one is not line.attempts[-1]) else one.state.value


def _is_over(line: TaskLine, one: Attempt) -> bool:
    return one.state.final or state(line, one) == "ended"


def _hint(attempt: Attempt, bar: Bar) -> str:
    lasted = f" for {duration(bar.end - bar.begin)}" if bar.end > bar.begin else ""
    return f"attempt {attempt.number}: {bar.state.value}{lasted} from {local_time(bar.begin, '%H:%M:%S')}"


def _ran(one: Attempt) -> float:
    return sum(bar.end - bar.begin for bar in one.bars if bar.state.value in ("starting", "running", "stalled"))


_KEY = (
    '<svg viewBox="0 0 10 10" aria-hidden="true" focusable="false">'
    '<rect x="0" y="0" width="10" height="10" class="f-{}"></rect></svg>'
)


@cache
def templates() -> Environment:
    """The templates of reports and of the dashboard."""
    here = Path(__file__).parent
    made = Environment(
        loader=FileSystemLoader([here, here.parent]),
        autoescape=True,
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(across=across, count=count, key=key, path=path, preformatted=preformatted, sentence=sentence)
    return made


def _safe(value: object) -> object:
    """The value made safe line by line, unless it is HTML already."""
    if isinstance(value, Markup | int):
        return value
    return "\n".join(map(one_line, hide_text(str(value)).split("\n")))


def escape(text: str) -> Markup:
    return Markup("{}").format(_safe(text))


def preformatted(text: str) -> str:
    """Unchanged lines, without the end of the last."""
    return "\n".join(lines_of(text))


def key(kind: str) -> Markup:
    """The colour of a kind, for a legend."""
    return Markup(_KEY).format(kind)


def colored(text: str, state: str) -> Markup:
    """A cell in the colour of a task's state."""
    return Markup('<span class="s-{}">{}</span>').format(state, escape(text))


WIDTH, HEIGHT = 1000.0, 100.0
_THINNEST = 1.5
"""The least width of a visible bar."""


def across(begin: float, end: float) -> tuple[Markup, Markup, bool]:
    """The start and width of a bar between two points from 0 to 1, and whether a gap fits into it."""
    x = min(max(begin, 0.0), 1.0) * WIDTH
    width = max(_THINNEST, min(max(end, 0.0), 1.0) * WIDTH - x)
    return _number(min(x, WIDTH - width)), _number(width), width > 8


def scaled(value: float, low: float, high: float) -> float | None:
    """The position of a number between two others; None if it is not finite."""
    if not math.isfinite(value):
        return None
    return min(1.0, max(0.0, share(value, low, high, 0.5)))


def path(points: Sequence[tuple[float, float | None]]) -> Markup:
    """The path of a curve; None is a gap. A single point between gaps is a dot: a line of no length with round ends."""
    words: list[str] = []
    pen = False
    for x, y in points:
        if y is None:
            pen = False
            continue
        place = f"{_number(x * WIDTH)} {_number(HEIGHT * (0.96 - 0.92 * y))}"
        words.append(f"L{place}" if pen else f"M{place}L{place}")
        pen = True
    return Markup("".join(words))


def _number(value: float) -> Markup:
    return Markup(f"{value:.2f}".rstrip("0").rstrip("."))
