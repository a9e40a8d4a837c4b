"""The tasks over time: a lane for each, and the same as a table."""

from __future__ import annotations

from dtctl.agent.records.reasons import sentence
from dtctl.model import TaskState
from dtctl.operations.report import Report
from dtctl.operations.report.timeline import Attempt, Bar, TaskLine, by_trouble, restarted
from dtctl.render.format import count, duration, local_time
from dtctl.render.report.html import Column, Html, bars, joined, key, scrolled, tag

MOST_LANES = 100
MOST_ROWS = 500
_STATES = ("starting", "running", "backoff", "pending", "stalled", "succeeded", "failed", "stopped", "lost")


def lanes(report: Report) -> Html:
    """Where there are many tasks, those that were restarted or have failed come first."""
    line = report.timeline
    shown = list(line.tasks)
    if len(shown) > MOST_LANES:
        shown = by_trouble(shown, report.status.record.lead)[:MOST_LANES]
    span = max(line.end - line.begin, 1e-9)
    drawn = [_lane(one, line.begin, span) for one in shown]
    states = {bar.state.value for one in shown for attempt in one.attempts for bar in attempt.bars}
    legend = tag("ul", [tag("li", key(state), state) for state in _STATES if state in states], class_="legend")
    left = len(line.tasks) - len(shown)
    return joined(
        legend,
        tag("div", drawn, _axis(line.begin, line.end)),
        tag("p", f"{count(left, 'other task')} in the table alone.", class_="soft") if left else None,
        tag("p", "What was before is left out: there is too much of it.", class_="soft") if line.cut else None,
    )


def attempts_table(report: Report) -> Html:
    """The lanes in words."""
    rows = []
    for line in report.timeline.tasks:
        for one in line.attempts:
            rows.append(
                [
                    str(line.task),
                    line.host,
                    str(one.number),
                    local_time(one.begin),
                    duration(_ran(one)),
                    tag("span", state(line, one), class_=f"s-{one.state.value}"),
                    sentence(one.why),
                ]
            )
    columns = ("task", "host", Column("attempt", "number"), Column("began", "nowrap"), Column("ran for", "number"))
    return scrolled("Attempts of each task", [*columns, "state", Column("why", "wide")], rows, most=MOST_ROWS)


def _lane(line: TaskLine, begin: float, span: float) -> Html:
    parts = [
        (bar.state.value, (bar.begin - begin) / span, (bar.end - begin) / span, _hint(attempt, bar))
        for attempt in line.attempts
        for bar in attempt.bars
    ]
    name = f"{line.task} on {line.host}"
    return tag(
        "div",
        tag("span", name, class_="name", title=name),
        bars(name, described(line), parts, cut=restarted(line)),
        class_="lane",
    )


def described(line: TaskLine) -> str:
    """A lane for those who do not see it."""
    if not line.attempts:
        return "not started"
    parts = [
        f"attempt {one.number} {state(line, one)} {'after' if _is_over(line, one) else 'for'} {duration(_ran(one))}"
        for one in line.attempts[-20:]
    ]
    return ", ".join(parts)


def state(line: TaskLine, one: Attempt) -> str:
    """What became of an attempt: one that was followed by another, or is waited for, has ended."""
    waits = one.state in (TaskState.PENDING, TaskState.BACKOFF)
    return "ended" if not one.state.final and (waits or one is not line.attempts[-1]) else one.state.value


def _is_over(line: TaskLine, one: Attempt) -> bool:
    return one.state.final or state(line, one) == "ended"


def _hint(attempt: Attempt, bar: Bar) -> str:
    lasted = f" for {duration(bar.end - bar.begin)}" if bar.end > bar.begin else ""
    return f"attempt {attempt.number}: {bar.state.value}{lasted} from {local_time(bar.begin, '%H:%M:%S')}"


def _axis(begin: float, end: float) -> Html:
    middle = (begin + end) / 2
    form = "%H:%M:%S" if end - begin < 86400 else "%m-%d %H:%M"
    times = [tag("span", local_time(at, form)) for at in (begin, middle, end)]
    return tag("div", tag("span"), tag("div", times, class_="axis"), class_="lane")


def _ran(one: Attempt) -> float:
    return sum(bar.end - bar.begin for bar in one.bars if bar.state.value in ("starting", "running", "stalled"))
