"""The tasks over time: a lane for each, and the same as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dtctl.agent.records.reasons import sentence
from dtctl.model import TaskState
from dtctl.operations.report import Report
from dtctl.operations.report.timeline import Attempt, Bar, TaskLine, Timeline, by_trouble
from dtctl.render.format import duration, local_time
from dtctl.render.report.html import colored

MOST_LANES = 100
MOST_ROWS = 500
_STATES = ("starting", "running", "backoff", "pending", "stalled", "succeeded", "failed", "stopped", "lost")


def lanes(report: Report) -> Sequence[TaskLine]:
    """Where there are many tasks, those that were restarted or have failed come first."""
    every = report.timeline.tasks
    return every if len(every) <= MOST_LANES else by_trouble(every, report.status.record.lead)[:MOST_LANES]


def states(lines: Iterable[TaskLine]) -> list[str]:
    """That there are, in the order of a legend."""
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
    """The lanes in words."""
    return [
        [
            *(str(line.task), line.host, str(one.number), local_time(one.begin), duration(_ran(one))),
            *(colored(state(line, one), one.state.value), sentence(one.why)),
        ]
        for line in report.timeline.tasks
        for one in line.attempts
    ]


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


def _ran(one: Attempt) -> float:
    return sum(bar.end - bar.begin for bar in one.bars if bar.state.value in ("starting", "running", "stalled"))
