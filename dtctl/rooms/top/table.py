"""The table of tasks: its columns, its rows (filtered, sorted, folded by job), and their lines.

Textual's DataTable cannot leave out columns on a narrow terminal, and takes four times as long to refill.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from dtctl.dataclass import dataclass
from dtctl.model import TaskId, TaskState
from dtctl.operations.snapshot import RunStatus, TaskStatus
from dtctl.render import roster
from dtctl.render.format import number
from dtctl.render.roster import STATE_STYLE, WORST_FIRST, note
from dtctl.rooms.metrics.screen import sparkline
from dtctl.rooms.top.model import Choice, Histories, Line, Snapshot, jobs_of, safe

CURVE = 10
"""The characters of a task's curve."""


@dataclass(frozen=True)
class RowData:
    """A task, and the data for its row."""

    task: TaskStatus
    place: int
    """The position in the order of the run."""
    status: RunStatus
    """The status with its current ages."""
    histories: Histories
    fine: bool
    """Whether the terminal can show the bars of curves."""


Key = float | str | None
"""The sort key of a cell; unknown values come last."""


@dataclass(frozen=True)
class Column:
    heading: str
    key: Callable[[RowData], Key] | None = None
    """None: rows cannot be sorted by it."""
    align: Literal["left", "right"] = "left"
    spare: int = 0
    """Without room, columns with the highest number are left out first; those with 0 never are."""
    text: Callable[[RowData], str] | None = None
    """None: the text of `dtctl status`."""

    def cell(self, seen: RowData) -> str:
        if self.text is not None:
            return self.text(seen)
        return str(roster.COLUMNS[self.heading](roster.Row((seen.task,), note(seen.task, seen.status)), seen.status))


def _since(seen: RowData) -> float | None:
    return (
        max(0.0, seen.status.time - seen.task.entry["since"]) if seen.task.entry["since"] and seen.status.time else None
    )


def _silent(seen: RowData) -> float | None:
    """The seconds since its last output; None for a task that has ended."""
    written = seen.task.entry["progress"]
    return None if written is None or seen.task.state.final else max(0.0, seen.status.time - written)


def _rate(seen: RowData) -> float | None:
    """The rate; None unless the task runs, because its last rate is then meaningless."""
    return seen.task.entry["rate"] if seen.task.state is TaskState.RUNNING else None


def _living(seen: RowData, name: Literal["cpu", "memory_bytes"]) -> float | None:
    """What a task uses; None of one that has ended."""
    return None if seen.task.state.final else seen.task.entry[name]


def curve(values: Sequence[float], width: int, *, fine: bool, from_zero: bool = False) -> str:
    """The latest values as a curve; empty if there are fewer than two. `from_zero`: small changes stay small."""
    if len(values) < 2:
        return ""
    some = values[-width:]
    return sparkline([0.0, *some], width + 1, fine=fine)[1:] if from_zero else sparkline(some, width, fine=fine)


def _least_use(seen: RowData) -> float | None:
    """The use of its GPU that is idle most, because that delays the others."""
    known = roster.gpus_of(seen.status, [seen.task])
    return min((gpu["busy"] for gpu in known if gpu["busy"] is not None), default=None)


COLUMNS = (
    Column("TASK", lambda seen: seen.place),
    Column("HOST", lambda seen: seen.task.host, spare=2),
    Column("STATE", lambda seen: WORST_FIRST.index(seen.task.state)),
    Column("FOR", _since, "right", spare=3),
    Column("STEP", lambda seen: seen.task.entry["step"], "right", spare=1),
    Column("RATE", _rate, "right", spare=4),
    Column(
        " RATE",
        text=lambda seen: curve(seen.histories.rate(seen.task.id), CURVE, fine=seen.fine, from_zero=True),
        spare=11,
    ),
    Column(
        "LOSS", lambda seen: number(seen.task.entry["loss"]), "right", 4, lambda seen: seen.task.entry["loss"] or ""
    ),
    Column(" LOSS", text=lambda seen: curve(seen.histories.loss(seen.task.id), CURVE, fine=seen.fine), spare=10),
    Column("CPU", lambda seen: _down(_living(seen, "cpu")), "right", spare=5),
    Column("MEMORY", lambda seen: _down(_living(seen, "memory_bytes")), "right", spare=5),
    Column("GPU USE", _least_use, "right", spare=5),
    Column("GPU MEMORY", align="right", spare=8),
    Column("GPU HEAT", spare=9),
    Column("RESTARTS", lambda seen: -seen.task.restarts, "right", spare=7),
    Column("OUTPUT", lambda seen: _down(_silent(seen)), "right", spare=6),
    Column("NOTE"),
)
"""A heading that begins with a blank is that of a curve, and is shown without a name."""


def _down(value: float | None) -> float | None:
    return None if value is None else -value


SORTED_BY = tuple(column.heading for column in COLUMNS if column.key is not None)


@dataclass(frozen=True)
class Row:
    """A row. `of`: the task, or the job whose tasks it summarizes. `cells` are by the headings of their columns."""

    of: TaskId | str
    cells: Mapping[str, str]
    style: str

    @property
    def job(self) -> str:
        return self.of if isinstance(self.of, str) else self.of.job


def rows(snapshot: Snapshot, histories: Histories, choice: Choice, *, fine: bool = True) -> list[Row]:
    """The rows of the table. A folded job is in the place of its first task."""
    status = snapshot.status_now
    every = [RowData(task, place, status, histories, fine) for place, task in enumerate(status.tasks.values())]
    shown = [(seen, row) for seen in every for row in [_row(seen)] if _has(row, choice.filter)]
    found: list[Row] = []
    folded: set[str] = set()
    for seen, row in _sorted(shown, choice):
        job = seen.task.id.job
        if job not in choice.folded:
            found.append(row)
        elif job not in folded:
            folded.add(job)
            found.append(_of_job(job, [other for other, _ in shown if other.task.id.job == job], snapshot))
    return found


def _row(seen: RowData) -> Row:
    cells = {column.heading: safe(column.cell(seen)) for column in COLUMNS}
    return Row(seen.task.id, cells, STATE_STYLE.get(seen.task.state, ""))


def _has(row: Row, pattern: str) -> bool:
    """Whether each word is somewhere in the row, ignoring case."""
    whole = " ".join(row.cells.values()).lower()
    return all(part in whole for part in pattern.lower().split())


def _sorted(shown: Sequence[tuple[RowData, Row]], choice: Choice) -> Iterable[tuple[RowData, Row]]:
    key = next((column.key for column in COLUMNS if column.heading == choice.sort), None)
    if key is None:
        return shown
    known = [(one, row) for one, row in shown if not _unknown(key(one))]
    rest = [(one, row) for one, row in shown if _unknown(key(one))]
    known.sort(key=lambda pair: key(pair[0]), reverse=choice.backwards)  # type: ignore[arg-type, return-value]
    return [*known, *rest]


def _unknown(key: Key) -> bool:
    return key is None or (isinstance(key, float) and math.isnan(key))


def _of_job(job: str, tasks: Sequence[RowData], snapshot: Snapshot) -> Row:
    """The row of a folded job, as in `dtctl status`, with the worst state and the number of tasks in each."""
    states = Counter(seen.task.state for seen in tasks)
    in_order = [state for state in WORST_FIRST if states[state]]
    counts = ", ".join(f"{states[state]} {state.value}" for state in in_order)
    folded = roster.cells_of(roster.Row(tuple(seen.task for seen in tasks), counts), tasks[0].status)
    whole = len(jobs_of(snapshot)[job])
    cells = {
        **{column.heading: folded.get(column.heading, "") for column in COLUMNS},
        "TASK": f"{job} ({len(tasks)})" if len(tasks) == whole else f"{job} ({len(tasks)}/{whole})",
        "STATE": in_order[0].value,
    }
    return Row(job, {heading: safe(text) for heading, text in cells.items()}, STATE_STYLE.get(in_order[0], ""))


GAP = 2
LEAST_NOTE = 16
"""Columns that a note gets before any other column."""


@dataclass(frozen=True)
class Layout:
    """The columns that are shown, and their widths."""

    columns: tuple[tuple[Column, int], ...]

    def heading(self, choice: Choice, *, fine: bool = True) -> Line:
        """The line of headings. The sort column is highlighted; the order of the run has no mark."""
        down, up = ("\u25be", "\u25b4") if fine else ("v", "^")
        line: Line = []
        for column, width in self.columns:
            name = column.heading if not column.heading.startswith(" ") else ""
            chosen = column.heading == choice.sort and (choice.backwards or choice.sort != COLUMNS[0].heading)
            mark = up if choice.backwards else down
            shown = _aligned(f"{name}{mark}" if chosen else name, width, column)
            line += [(shown, "bold" if chosen else "dim"), (" " * GAP, "")]
        return line[:-1]

    def line(self, row: Row) -> Line:
        line: Line = []
        for column, width in self.columns:
            style = row.style if column.heading in ("STATE", "NOTE") and row.style != "green" else ""
            style = row.style if column.heading == "STATE" else style
            line += [(_aligned(row.cells[column.heading], width, column), style), (" " * GAP, "")]
        return line[:-1]


def layout(rows: Sequence[Row], width: int) -> Layout:
    """The columns that fit. Empty columns are left out, and others without room; the remaining width is the note's."""
    wanted = {column.heading: _width(column, rows) for column in COLUMNS}
    shown = [column for column in COLUMNS if wanted[column.heading]]

    def needed() -> int:
        note = min(wanted["NOTE"], LEAST_NOTE)
        return sum(wanted[one.heading] + GAP for one in shown if one.heading != "NOTE") + note

    while needed() > width and any(column.spare for column in shown):
        shown.remove(max(shown, key=lambda column: column.spare))
    taken = sum(wanted[one.heading] + GAP for one in shown if one.heading != "NOTE")
    wanted["NOTE"] = max(0, width - taken)
    return Layout(tuple((column, wanted[column.heading]) for column in shown))


def _width(column: Column, rows: Sequence[Row]) -> int:
    """The width of a column, with room for the sort mark in its heading; 0 if all of its cells are empty."""
    from rich.cells import cell_len

    widest = max((cell_len(row.cells[column.heading]) for row in rows), default=0)
    if not widest and column.heading not in ("TASK", "STATE"):
        return 0
    if column.key is None:  # a note, or a curve without a heading
        return widest
    return max(widest, len(column.heading) + 1)


def _aligned(text: str, width: int, column: Column) -> str:
    """The text in exactly `width` columns of the terminal; a cut text ends with a mark."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + ">" if width > 1 else set_cell_size(text, width)
    blank = " " * (width - cell_len(text))
    return blank + text if column.align == "right" else text + blank
