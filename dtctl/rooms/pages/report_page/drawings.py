"""Drawings of pages: HTML from templates, and tasks over time.

Values in templates are text, and escaped: nothing that a host sends can become a tag. Texts are masked once more,
because the agent of an older run may have masked less than the current one. A report has a lane
for each task, and the same as a table.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dtctl.agent.host.secrets import hide_text
from dtctl.agent.records.reasons import sentence
from dtctl.dataclass import dataclass
from dtctl.model import TaskState, grouped
from dtctl.render.format import count, duration, fold, local_time, summarize_hosts
from dtctl.render.terminal.safe import lines_of, one_line
from dtctl.rooms.pages.report import Report
from dtctl.rooms.pages.report.timeline import Attempt, Bar, TaskLine, Timeline, by_trouble, is_calm
from dtctl.rooms.pages.report_page.axes import time_axis

MOST_LANES = 24
"""The most lanes; if there are more tasks, those of a job that have run without a restart share one."""
MOST_ROWS = 500
_MOST_MARKS = 100
"""The most marks that have room beside each other."""
_STATES = ("starting", "running", "backoff", "pending", "stalled", "succeeded", "failed", "stopped", "lost")


@dataclass(frozen=True)
class Lane:
    """Tasks that are drawn as one line: the first of them stands for all."""

    tasks: str
    hosts: str
    line: TaskLine
    count: int = 1

    @property
    def name(self) -> str:
        return f"{self.tasks} on {self.hosts}"


def lanes(report: Report) -> list[Lane]:
    """The tasks in their order; of many tasks those that were restarted or have failed first, and the others by job."""
    every = report.timeline.tasks
    if len(every) <= MOST_LANES:
        return [_lane([line]) for line in every]
    troubled = [line for line in by_trouble(every, report.status.record.lead) if not is_calm(line)][:MOST_LANES]
    calm = grouped(((line.task.job, line.state), line) for line in every if is_calm(line))
    return [*map(_lane, ([line] for line in troubled)), *map(_lane, calm.values())]


def _lane(lines: Sequence[TaskLine]) -> Lane:
    hosts = summarize_hosts(dict.fromkeys(line.host for line in lines), _SHORT)
    return Lane(fold(str(line.task) for line in lines), hosts, lines[0], len(lines))


_SHORT = 11
"""The most characters of hosts that fit beside a lane."""


def states(lines: Iterable[Lane]) -> list[str]:
    """The states that occur, in the order of a legend."""
    there = {bar.state.value for one in lines for attempt in one.line.attempts for bar in attempt.bars}
    return [state for state in _STATES if state in there]


def bars(line: TaskLine, whole: Timeline) -> list[tuple[str, float, float, str]]:
    span = max(whole.end - whole.begin, 1e-9)
    return [
        (bar.state.value, (bar.begin - whole.begin) / span, (bar.end - whole.begin) / span, _hint(attempt, bar))
        for attempt in line.attempts
        for bar in attempt.bars
    ]


def axis(whole: Timeline) -> list[tuple[float, str]]:
    """The place of each tick of the time axis from 0 to 1, and its text."""
    form = "%H:%M:%S" if whole.end - whole.begin < 86400 else "%m-%d %H:%M"
    axis = time_axis(whole.begin, whole.end, time.localtime(whole.end).tm_gmtoff)
    return [(axis.place(at) or 0.0, local_time(at, form)) for at in axis.ticks]


def restart_marks(lines: Iterable[Lane], whole: Timeline) -> list[tuple[float, str]]:
    """The place of each restart on the time axis, with a text for the pointer; restarts at one moment share a mark."""
    span = max(whole.end - whole.begin, 1e-9)
    begun = sorted((one.begin, str(lane.line.task)) for lane in lines for one in lane.line.attempts if one.number > 1)
    marks: list[tuple[float, list[str]]] = []
    for at, task in begun:
        if not marks or at - marks[-1][0] > span / _MOST_MARKS:
            marks.append((at, []))
        marks[-1][1].append(task)
    return [
        ((at - whole.begin) / span, f"{local_time(at, '%H:%M:%S')}: {fold(tasks)} restarted") for at, tasks in marks
    ]


def attempts(report: Report) -> list[list[str]]:
    """The lanes as text."""
    return [
        [
            *(lane.tasks, lane.hosts, str(attempt.number), local_time(attempt.begin), duration(_ran(attempt))),
            *(colored(state(lane.line, attempt), attempt.state.value), sentence(attempt.why)),
        ]
        for lane in lanes(report)
        for attempt in lane.line.attempts
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
    made.globals.update(
        across=across,
        breakable=breakable,
        count=count,
        percent=percent,
        upward=upward,
        key=key,
        path=path,
        preformatted=preformatted,
        sentence=sentence,
    )
    return made


def _safe(value: object) -> object:
    """The value made safe line by line, unless it is HTML already."""
    if isinstance(value, Markup | int):
        return value
    return "\n".join(map(one_line, hide_text(str(value)).split("\n")))


def escape(text: str) -> Markup:
    return Markup("{}").format(_safe(text))


def breakable(text: str) -> Markup:
    """The text, which a narrow screen may break after a dot or an underscore: `recovery.max_restarts`."""
    return Markup("<wbr>").join(escape(piece) for piece in re.findall(r"[^._]*[._]*", text) if piece)


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
_MARGIN = 0.04
_THINNEST = 1.5
"""The least width of a visible bar."""


def across(begin: float, end: float) -> tuple[Markup, Markup, bool]:
    """The start and width of a bar between two points from 0 to 1, and whether a gap fits into it."""
    x = min(max(begin, 0.0), 1.0) * WIDTH
    width = max(_THINNEST, min(max(end, 0.0), 1.0) * WIDTH - x)
    return _number(min(x, WIDTH - width)), _number(width), width > 8


def percent(place: float) -> Markup:
    """A place from 0 to 1 along a side of a drawing."""
    return Markup(f"{_number(100 * place)}%")


def upward(place: float, whole: float = HEIGHT) -> Markup:
    """The distance from the top of a drawing: there is room above and below its lines."""
    return _number(whole * (1 - _MARGIN - (1 - 2 * _MARGIN) * place))


def path(points: Sequence[tuple[float, float | None]]) -> Markup:
    """The path of a curve; None is a gap. A single point between gaps is a dot: a line of no length with round ends."""
    words: list[str] = []
    pen = False
    for x, y in points:
        if y is None:
            pen = False
            continue
        place = f"{_number(x * WIDTH)} {upward(y)}"
        words.append(f"L{place}" if pen else f"M{place}L{place}")
        pen = True
    return Markup("".join(words))


def _number(value: float) -> Markup:
    return Markup(f"{value:.2f}".rstrip("0").rstrip("."))
