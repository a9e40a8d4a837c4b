"""The tasks of a run as a table.

Tasks in the same state share a line if there is no room for all, and a narrow terminal gets fewer columns; failures and
their reasons are always shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from dtctl.agent.records.reasons import fact, read, sentence
from dtctl.dataclass import dataclass
from dtctl.errors import clipped
from dtctl.model import TaskState, grouped
from dtctl.operations.findings import Facts
from dtctl.operations.pace import silent_after_s, stragglers
from dtctl.operations.snapshot import RunStatus, TaskStatus, how_it_ended
from dtctl.render.failure import in_a_cell
from dtctl.render.format import duration, fold, size, summarize_hosts
from dtctl.render.terminal.console import styled, table

if TYPE_CHECKING:
    from rich.text import Text

    from dtctl.agent.records.vitals import Gpu
    from dtctl.render.terminal.grid import Grid

STATE_STYLE = {
    TaskState.RUNNING: "green",
    TaskState.SUCCEEDED: "bold green",
    TaskState.FAILED: "bold red",
    TaskState.BACKOFF: "yellow",
    TaskState.STALLED: "yellow",
    TaskState.LOST: "magenta",
    TaskState.STOPPED: "dim",
}
TROUBLE = (TaskState.FAILED, TaskState.LOST, TaskState.STALLED, TaskState.BACKOFF)
WORST_FIRST = (
    *(*TROUBLE, TaskState.STARTING, TaskState.PENDING),
    *(TaskState.RUNNING, TaskState.STOPPED, TaskState.SUCCEEDED),
)
"""States in the order of a folded table."""

_DROPPED = (
    *("PID", "MEMORY", "CPU", "GPU HEAT", "FOR", "OUTPUT", "GPU MEMORY", "RESTARTS", "GPU USE", "RATE", "STEP", "HOST"),
)
"""Columns that a narrow terminal leaves out, in this order."""

_NOTE_WIDTH = 28
_LONGEST_HOSTS = 28


@dataclass(frozen=True)
class Row:
    """Tasks of one job in the same state, with the same note."""

    tasks: tuple[TaskStatus, ...]
    note: str

    @property
    def first(self) -> TaskStatus:
        return self.tasks[0]

    @property
    def troubled(self) -> int:
        """The order in a folded table: 0 is the worst, and comes first."""
        state = self.first.state
        if state in TROUBLE:
            return TROUBLE.index(state)
        return len(TROUBLE) if self.note else len(TROUBLE) + 1


def rows_of(status: RunStatus, room: int | None = None) -> list[Row]:
    """A row for each task; if `room` is for fewer, those of a job with the same state and note share one."""
    slow = {seen.tasks[0]: seen.fields for seen in stragglers(Facts(status))}
    each = []
    for task in status.tasks.values():
        usual = slow[task.id]["usual"] if task.id in slow else None
        each.append(Row((task,), note(task, status) or _pace_note(task, status, usual)))
    if room is None or len(each) <= room:
        return each
    groups = grouped(((row.first.id.job, row.first.state, row.note), row.first) for row in each)
    folded = [Row(tuple(tasks), note) for (_, _, note), tasks in groups.items()]
    return sorted(folded, key=lambda row: row.troubled)


def tasks_table(rows: Sequence[Row], status: RunStatus) -> Grid:
    """The table without empty columns, as narrow as the terminal is."""
    cells = {name: [cell(row, status) for row in rows] for name, cell in COLUMNS.items()}
    columns = {name: column for name, column in cells.items() if name in _ALWAYS or any(map(str, column))}
    return table(columns, dropped=_DROPPED, least_note=_NOTE_WIDTH)


def cells_of(row: Row, status: RunStatus) -> dict[str, str]:
    """The cell of a row in each column."""
    return {name: str(cell(row, status)) for name, cell in COLUMNS.items()}


def _state_cell(row: Row, status: RunStatus) -> Text:
    state = row.first.state
    return styled(state.value, STATE_STYLE.get(state, ""))


def _living(task: TaskStatus) -> bool:
    return not task.state.final


def _of(
    name: str, shown: Callable[[list[Any], float], str], meant: Callable[[TaskStatus], bool] = lambda task: True
) -> Callable[[Row, RunStatus], str]:
    """A cell with a value that agents report of the selected tasks; `shown` gets their values, and the time."""

    def cell(row: Row, status: RunStatus) -> str:
        entries: list[Mapping[str, Any]] = [task.entry for task in row.tasks if meant(task)]
        values = [entry[name] for entry in entries if entry[name] is not None]
        return shown(values, status.time) if values else ""

    return cell


def _span(values: list[Any], now: float) -> str:
    return str(min(values)) if min(values) == max(values) else f"{min(values)}..{max(values)}"


def _is_counted(row: Row) -> bool:
    """Whether the steps are counted from positions within epochs."""
    return any(task.entry["step"] is not None and task.entry["position"] is not None for task in row.tasks)


def _ago(time: float, now: float) -> str:
    return duration(now - time) if time and now else ""


def gpus_of(status: RunStatus, tasks: Iterable[TaskStatus]) -> list[Gpu]:
    """The GPUs of tasks that have not ended."""
    facts = Facts(status)
    return [gpu for task in tasks if not task.state.final for gpu in facts.gpus_of(task)]


def _gpu_cell(what: Literal["use", "memory", "heat"], row: Row, status: RunStatus) -> str:
    own = gpus_of(status, row.tasks)
    if not own:
        return ""
    from dtctl.render import gpus  # most runs have none

    return {"use": gpus.use, "memory": gpus.memory, "heat": gpus.heat}[what](own)


COLUMNS: dict[str, Callable[[Row, RunStatus], str | Text]] = {
    "TASK": lambda row, status: fold(str(task.id) for task in row.tasks),
    "HOST": lambda row, status: summarize_hosts(dict.fromkeys(task.host for task in row.tasks), _LONGEST_HOSTS),
    "STATE": _state_cell,
    "FOR": _of("since", lambda times, now: _ago(max(times), now)),
    "STEP": lambda row, status: ("~" if _is_counted(row) else "") + _of("step", _span)(row, status),
    "RATE": _of("rate", lambda rates, _: f"{median(rates):.3g}/s", lambda task: task.state is TaskState.RUNNING),
    "OUTPUT": _of("progress", lambda times, now: _ago(min(times), now), _living),
    "RESTARTS": lambda row, status: _span([task.restarts for task in row.tasks], status.time),
    "CPU": _of("cpu", lambda busy, _: f"{100 * median(busy):.0f}%", _living),
    "MEMORY": _of("memory_bytes", lambda used, _: size(max(used)) if max(used) else "", _living),
    "GPU USE": lambda row, status: _gpu_cell("use", row, status),
    "GPU MEMORY": lambda row, status: _gpu_cell("memory", row, status),
    "GPU HEAT": lambda row, status: _gpu_cell("heat", row, status),
    "PID": _of("pid", lambda pids, _: str(pids[0]) if len(pids) == 1 and pids[0] else "", _living),
    "NOTE": lambda row, status: row.note,
}
"""Cells of several tasks show: the shortest time in a state, the median rate and use, the most memory, the longest
silence. CPU is in processors, as in `top`."""
_ALWAYS = ("TASK", "HOST", "STATE", "FOR", "RESTARTS")


def note(task: TaskStatus, status: RunStatus) -> str:
    if task.state is TaskState.BACKOFF:
        if task.entry["next_start"]:
            wait = f"starts again in {duration(max(0.0, task.entry['next_start'] - status.time))}"
        else:
            early = any(read(one)["kind"] == "early" for one in task.why)
            wait = "starts again with them" if early else "waits for the coordinator"
        return f"{in_a_cell(how_it_ended(task))}; {wait}"
    if task.state is TaskState.FAILED:
        return in_a_cell(how_it_ended(task))
    if task.state is TaskState.STOPPED:
        killed = [one for one in task.why if read(one)["kind"] == "killed_after"]
        rest = [one for one in task.why if read(one)["kind"] != "killed_after"]
        above = status.verdict.why  # the line above the table shows it
        kept = rest[: -len(above)] if above and tuple(rest[-len(above) :]) == above else rest
        why = sentence([*killed, *kept])
        how = (
            sentence([fact("exited", code=task.exit["code"])])
            if task.exit["signal"] is None and task.exit["code"] is not None
            else ""
        )
        return f"{why} ({how})" if why and how else why or how
    if task.state is TaskState.SUCCEEDED:
        return left_behind(task)
    return sentence(task.why)


def _pace_note(task: TaskStatus, status: RunStatus, usual: float | None) -> str:
    """The note of a running task: slower than its peers, its logged complaint, or the age of its last step."""
    if task.state is not TaskState.RUNNING:
        return ""
    if usual is not None:
        return f"straggler: its peers make {usual:.3g}/s"
    if complaint := Facts(status).complaint(task):
        return f"says: {clipped(complaint, 100)}"
    target = status.record.target_step
    if (
        task.entry["step"] is None
        or task.entry["step_time"] is None
        or (target is not None and task.entry["step"] >= target)
    ):
        return ""
    silent = status.time - task.entry["step_time"]
    return f"last step {duration(silent)} ago" if silent >= silent_after_s(task.entry["step_gap_s"]) else ""


def left_behind(task: TaskStatus) -> str:
    """The processes that the trainer left behind; empty if there were none."""
    return sentence(one for one in task.why if read(one)["kind"] == "left_behind")
