"""The states of each task of a run over time, attempt by attempt, by the event history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dtctl.agent.records.reasons import Fact, why_of
from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.dataclass import dataclass
from dtctl.model import TaskId, TaskState, grouped
from dtctl.operations.snapshot import TaskStatus


@dataclass(frozen=True)
class Bar:
    """A period in which a task was in one state, in epoch seconds of its host."""

    state: TaskState
    begin: float
    end: float


@dataclass(frozen=True)
class Attempt:
    """One start of a task: its states in order, and how and why it ended."""

    number: int
    bars: tuple[Bar, ...]
    state: TaskState
    """The final or current state."""
    why: Sequence[Fact] = ()

    @property
    def begin(self) -> float:
        return self.bars[0].begin

    @property
    def end(self) -> float:
        return self.bars[-1].end


@dataclass(frozen=True)
class TaskLine:
    """All attempts of a task that are known, oldest first."""

    task: TaskId
    host: str
    state: TaskState
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Timeline:
    """The timeline between `begin` and `end`, in epoch seconds. `cut`: there was more before than was asked for."""

    begin: float
    end: float
    tasks: tuple[TaskLine, ...]
    cut: bool = False


MOST_ATTEMPTS = 100
"""The most attempts of one task; the newest are shown."""

_WAITS = (TaskState.PENDING, TaskState.BACKOFF)


def timeline(events: Sequence[HistoryEvent], tasks: Iterable[TaskStatus], now: float, *, cut: bool) -> Timeline:
    """`events`: the event history in order; `now` is the end of what still runs."""
    by_task = grouped((event["task"], event) for event in events if event["kind"] == "task")
    lines = tuple(
        TaskLine(task.id, task.host, task.state, tuple(_attempts(task, by_task.get(str(task.id), []), now)))
        for task in tasks
    )
    begins = (
        [events[0]["time"]] if events else [bar.begin for line in lines for one in line.attempts for bar in one.bars]
    )
    ends = [attempt.end for line in lines for attempt in line.attempts]
    begin = min([*begins, *(attempt.begin for line in lines for attempt in line.attempts)], default=now)
    return Timeline(begin, max([begin, *ends]), lines, cut)


def _attempts(task: TaskStatus, events: list[HistoryEvent], now: float) -> list[Attempt]:
    moves = [one for one in events if one["from"] != one["to"] and one["to"] in set(TaskState)]
    found = _from_moves(task, moves, now) if moves else _from_history(task, now)
    return found[-MOST_ATTEMPTS:]


def _from_moves(task: TaskStatus, moves: list[HistoryEvent], now: float) -> list[Attempt]:
    """The attempts by transitions; a wait belongs to the attempt before it, and the first wait to the first attempt."""
    over = max(now, moves[-1]["time"])
    bars: dict[int, list[Bar]] = {}
    ended: dict[int, HistoryEvent] = {}
    for number, one in enumerate(moves):
        state, attempt = TaskState(one["to"]), one["attempt"] or 0
        end = moves[number + 1]["time"] if number + 1 < len(moves) else over
        until = one["time"] if state.final else max(one["time"], end)
        bars.setdefault(attempt, []).append(Bar(state, one["time"], until))
        if state not in (TaskState.STARTING, TaskState.RUNNING) and one["from"] not in ("pending", "backoff"):
            ended.setdefault(attempt, one)
    bars = {number: several for number, several in bars.items() if number or len(bars) == 1}
    return [_attempt(task, number, several, ended.get(number)) for number, several in sorted(bars.items())]


def _attempt(task: TaskStatus, number: int, bars: list[Bar], end: HistoryEvent | None) -> Attempt:
    state = task.state if number == task.entry["attempt"] else bars[-1].state
    return Attempt(number, tuple(bars), state, why_of(end) if end is not None else ())


def _from_history(task: TaskStatus, now: float) -> list[Attempt]:
    """The attempts of a task without events, by its recorded attempts and its current state."""
    attempts = []
    for past in task.entry["history"]:
        state = TaskState.SUCCEEDED if past["code"] == 0 else TaskState.STOPPED if past["asked"] else TaskState.FAILED
        bars = (Bar(TaskState.RUNNING, past["started"], past["ended"]), Bar(state, past["ended"], past["ended"]))
        attempts.append(Attempt(past["attempt"], bars, state))
    if task.entry["since"] is not None and not task.state.final and task.state not in _WAITS:
        attempts.append(
            Attempt(
                task.entry["attempt"],
                (Bar(task.state, task.entry["since"], max(now, task.entry["since"])),),
                task.state,
                task.why,
            )
        )
    return attempts


def restarted(line: TaskLine) -> bool:
    return len(line.attempts) > 1


def is_calm(line: TaskLine) -> bool:
    """Whether nothing was wrong with the task so far."""
    return line.state in _CALM and not restarted(line)


_CALM = (TaskState.RUNNING, TaskState.SUCCEEDED, TaskState.PENDING, TaskState.STARTING)


def by_trouble(lines: Sequence[TaskLine], lead: TaskId) -> list[TaskLine]:
    """Tasks with failures first, and the lead; the others in their order."""
    return sorted(lines, key=lambda line: (is_calm(line), line.task != lead))
