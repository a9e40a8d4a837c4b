"""The rows of the table: filtered, sorted, and folded by job."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dtctl.model import TaskId, TaskState
from dtctl.render.health.roster import STATE_STYLE
from dtctl.render.top.columns import COLUMNS, Key, Seen
from dtctl.render.top.history import Courses
from dtctl.render.top.snapshot import WORST_FIRST, Choice, Moment, jobs_of, safe


@dataclass(frozen=True)
class Row:
    """`of`: the task, or the job whose tasks it stands for. Cells by the headings of their columns."""

    of: TaskId | str
    cells: Mapping[str, str]
    style: str

    @property
    def job(self) -> str:
        return self.of if isinstance(self.of, str) else self.of.job


def rows(moment: Moment, courses: Courses, choice: Choice, *, fine: bool = True) -> list[Row]:
    """A job that is folded stands where the first of its tasks would."""
    every = [Seen(task, place, moment, courses, fine) for place, task in enumerate(moment.status.tasks.values())]
    shown = [(seen, row) for seen in every for row in [_row(seen)] if _has(row, choice.words)]
    found: list[Row] = []
    folded: set[str] = set()
    for seen, row in _sorted(shown, choice):
        job = seen.task.id.job
        if job not in choice.folded:
            found.append(row)
        elif job not in folded:
            folded.add(job)
            found.append(_of_job(job, [other for other, _ in shown if other.task.id.job == job], moment))
    return found


def _row(seen: Seen) -> Row:
    cells = {column.heading: safe(column.text(seen)) for column in COLUMNS}
    return Row(seen.task.id, cells, STATE_STYLE.get(seen.task.state, ""))


def _has(row: Row, words: str) -> bool:
    """Each word somewhere in the row, in small letters or capitals."""
    whole = " ".join(row.cells.values()).lower()
    return all(word in whole for word in words.lower().split())


def _sorted(shown: Sequence[tuple[Seen, Row]], choice: Choice) -> Iterable[tuple[Seen, Row]]:
    key = next((column.key for column in COLUMNS if column.heading == choice.sort), None)
    if key is None:
        return shown
    known = [(one, row) for one, row in shown if not _unknown(key(one))]
    rest = [(one, row) for one, row in shown if _unknown(key(one))]
    known.sort(key=lambda pair: key(pair[0]), reverse=choice.backwards)  # type: ignore[arg-type, return-value]
    return [*known, *rest]


def _unknown(key: Key) -> bool:
    return key is None or (isinstance(key, float) and math.isnan(key))


def _of_job(job: str, tasks: Sequence[Seen], moment: Moment) -> Row:
    """The worst state, the furthest step, the rate in the middle, and how many tasks are in which state."""
    states = Counter(seen.task.state for seen in tasks)
    in_order = [state for state in WORST_FIRST if states[state]]
    steps = [seen.task.step for seen in tasks if seen.task.step is not None]
    rates = [seen.task.rate for seen in tasks if seen.task.rate is not None and seen.task.state is TaskState.RUNNING]
    hosts = {seen.task.host for seen in tasks}
    whole = len(jobs_of(moment)[job])
    cells = {
        **dict.fromkeys((column.heading for column in COLUMNS), ""),
        "TASK": f"{job} ({len(tasks)})" if len(tasks) == whole else f"{job} ({len(tasks)}/{whole})",
        "HOST": next(iter(hosts)) if len(hosts) == 1 else f"{len(hosts)} hosts",
        "STATE": in_order[0].value,
        "STEP": str(max(steps)) if steps else "",
        "RATE": f"{median(rates):.3g}/s" if rates else "",
        "RESTARTS": str(sum(seen.task.restarts for seen in tasks)),
        "NOTE": ", ".join(f"{states[state]} {state.value}" for state in in_order),
    }
    return Row(job, {heading: safe(text) for heading, text in cells.items()}, STATE_STYLE.get(in_order[0], ""))
