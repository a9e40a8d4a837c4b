"""The columns of the table: what each tells of a task, by what it sorts, and which are left out first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dtctl.agent.records.reasons import sentence
from dtctl.model import TaskState
from dtctl.operations.client.tasks import TaskStatus, how_it_ended
from dtctl.render.metrics.plot import sparkline
from dtctl.render.top.history import Courses, latest, number
from dtctl.render.top.snapshot import WORST_FIRST, Moment
from dtctl.render.words import duration

CURVE = 10
"""Characters of a task's curve."""


@dataclass(frozen=True)
class Seen:
    """A task, and all that its row is made from."""

    task: TaskStatus
    place: int
    """In the order of the run."""
    moment: Moment
    courses: Courses
    fine: bool
    """The terminal can show the bars of curves."""


Key = float | str | None
"""Of a cell; what is not known comes last."""


@dataclass(frozen=True)
class Column:
    heading: str
    text: Callable[[Seen], str]
    key: Callable[[Seen], Key] | None = None
    """None: nobody sorts by it."""
    align: Literal["left", "right"] = "left"
    spare: int = 0
    """Columns with the highest number are left out first where there is no room; those with 0 never."""


def _since(seen: Seen) -> float | None:
    return max(0.0, seen.moment.now - seen.task.since) if seen.task.since and seen.moment.now else None


def _silent(seen: Seen) -> float | None:
    """Since its last output; of a task that has ended nobody waits for more."""
    told = seen.task.output_time
    return None if told is None or seen.task.state.final else max(0.0, seen.moment.now - told)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else duration(seconds)


def _rate(seen: Seen) -> float | None:
    """Of a task that does not run its last rate says nothing."""
    return seen.task.rate if seen.task.state is TaskState.RUNNING else None


def curve(values: Sequence[float], width: int, *, fine: bool, from_zero: bool = False) -> str:
    """The latest of them; empty where there is nothing that could move. `from_zero`: small changes stay small."""
    if len(values) < 2:
        return ""
    some = latest(values, width)
    return sparkline([0.0, *some], width + 1, fine=fine)[1:] if from_zero else sparkline(some, width, fine=fine)


def _rates(seen: Seen) -> str:
    return curve(seen.courses.rate(seen.task.id), CURVE, fine=seen.fine, from_zero=True)


def note(task: TaskStatus, moment: Moment) -> str:
    """Why it is as it is."""
    if task.state is TaskState.BACKOFF:
        wait = f"starts again in {_span(task.next_start - moment.now)}" if task.next_start else "waits for the others"
        return f"{sentence(how_it_ended(task))}; {wait}"
    if task.state is TaskState.FAILED:
        return sentence(how_it_ended(task))
    return sentence(task.why)


COLUMNS = (
    Column("TASK", lambda seen: str(seen.task.id), lambda seen: seen.place),
    Column("HOST", lambda seen: seen.task.host, lambda seen: seen.task.host, spare=2),
    Column("STATE", lambda seen: seen.task.state.value, lambda seen: WORST_FIRST.index(seen.task.state)),
    Column("FOR", lambda seen: _span(_since(seen)), _since, "right", spare=3),
    Column(
        "STEP",
        lambda seen: "" if seen.task.step is None else str(seen.task.step),
        lambda seen: seen.task.step,
        "right",
        spare=1,
    ),
    Column("RATE", lambda seen: "" if (rate := _rate(seen)) is None else f"{rate:.3g}/s", _rate, "right", spare=4),
    Column(" RATE", _rates, spare=9),
    Column("LOSS", lambda seen: seen.task.loss or "", lambda seen: number(seen.task.loss), "right", spare=5),
    Column(" LOSS", lambda seen: curve(seen.courses.loss(seen.task.id), CURVE, fine=seen.fine), spare=8),
    Column("RESTARTS", lambda seen: str(seen.task.restarts), lambda seen: -seen.task.restarts, "right", spare=7),
    Column("OUTPUT", lambda seen: _span(_silent(seen)), lambda seen: _down(_silent(seen)), "right", spare=6),
    Column("NOTE", lambda seen: note(seen.task, seen.moment)),
)
"""A heading that begins with a blank is that of a curve, and is shown without a name."""


def _down(value: float | None) -> float | None:
    return None if value is None else -value


SORTED_BY = tuple(column.heading for column in COLUMNS if column.key is not None)
