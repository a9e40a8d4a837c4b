"""The whole screen as lines, for a terminal of a given size. Pure: state and choices go in, lines come out."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from dtctl.agent.records.reasons import sentence, why_of
from dtctl.agent.records.whole_run import is_open
from dtctl.dataclass import dataclass
from dtctl.model import TaskId, grouped
from dtctl.operations.figures import figures_of
from dtctl.operations.snapshot import Outcome, how_it_ended
from dtctl.render.events import incident_lines, warnings
from dtctl.render.failure import brief
from dtctl.render.following import bar
from dtctl.render.format import count, fold
from dtctl.render.roster import STATE_STYLE, TROUBLE, WORST_FIRST, note
from dtctl.render.status import between_facts, headline
from dtctl.rooms.metrics.operation import Point, rates_of
from dtctl.rooms.top.charts import FROM_ZERO, LEAST_ROWS, MOST_ROWS, Series, charts
from dtctl.rooms.top.model import Choice, Histories, History, Line, Snapshot, safe
from dtctl.rooms.top.table import Layout, Row, curve, layout, rows
from dtctl.transport.group_errors import rows as error_rows

_LEAST_ROWS = 6
"""Lines that the table always gets."""

_HIGH = 32
"""Rows of a terminal that has one for a bar."""

_TAIL_ROWS = 7
_LEAST_TAIL = 4
"""Rows for the end of the chosen task's log with its title: what charts leave to it, and the fewest."""

_COMMAND = "cyan"
"""The style of commands, which are not broken."""

_MOST_OF_ONE = 3
"""The most lines of one problem."""


@dataclass(frozen=True)
class Page:
    """The screen's parts. `top`: the answer, the curves, and the problems."""

    top: tuple[Line, ...]
    heading: Line
    layout: Layout
    rows: tuple[Row, ...]
    tail_rows: int = 0
    """The rows below the table that are free for the end of a log."""

    def lines(self) -> list[Line]:
        return [self.layout.line(row) for row in self.rows]


def page(
    snapshot: Snapshot,
    histories: Histories,
    points: Sequence[Point],
    choice: Choice,
    size: tuple[int, int],
    *,
    fine: bool = True,
) -> Page:
    """The screen. `size`: columns and rows of the terminal; `points`: of the loss in event files."""
    width, height = size
    shown = rows(snapshot, histories, choice, fine=fine)
    series = series_of(snapshot, histories, points)
    moved = curves(series, width, fine=fine)
    head = [part for line in between_facts(answer(snapshot), width) for part in wrapped(line, width)]
    head = [*head[: max(1, height // 4)], *(_bar(snapshot, width, fine=fine) if height >= _HIGH else ())]
    below = _troubles(snapshot, width, max(1, height - len(head) - bool(moved) - _LEAST_ROWS))
    if choice.filter:
        below += [[(f"filter: {safe(choice.filter)}   {len(shown)} of {len(snapshot.status.tasks)} rows", "reverse")]]
    free = height - len(head) - len(below) - 1 - max(len(shown), 1)
    high = min(MOST_ROWS, free - _TAIL_ROWS if free >= LEAST_ROWS + _TAIL_ROWS else free)
    drawn = charts(series, width, high, fine=fine) or ([moved] if moved else [])
    columns = layout(shown, width)
    rest = free - len(drawn)
    top = (*head, *drawn, *below)
    return Page(top, columns.heading(choice, fine=fine), columns, tuple(shown), rest if rest >= _LEAST_TAIL else 0)


def _troubles(snapshot: Snapshot, width: int, room: int) -> list[Line]:
    """The problems that fit the room, without cutting one; always the first."""
    for most in range(room, 0, -1):
        lines = [part for line in problems(snapshot, most) for part in _some(wrapped(line, width))]
        if len(lines) <= room or most == 1:
            return lines
    return []


def _some(lines: list[Line]) -> list[Line]:
    """At most a few of the lines of one problem; its command is always among them, as a whole."""
    if len(lines) <= _MOST_OF_ONE:
        return lines
    command = [piece for piece in lines[-1] if piece[1] == _COMMAND]
    kept = _MOST_OF_ONE - bool(command)
    cut = [*lines[: kept - 1], [*lines[kept - 1][:-2], (" ...", "dim")]]
    return [*cut, [("  ", ""), *command]] if command else cut


def wrapped(line: Line, width: int) -> list[Line]:
    """The line in lines of at most `width` columns, broken at blanks if possible; later ones are indented."""
    from rich.cells import cell_len

    lines: list[Line] = [[]]
    left = width
    for text, style in line:
        whole = style == _COMMAND and cell_len(text.strip()) <= width - 2
        for word in [text] if whole else re.findall(r"\S+|\s+", text):
            needed = cell_len(word)
            if needed > left and lines[-1]:
                lines.append([("  ", "")])
                left = width - 2
                if word.isspace():
                    continue
                word = word.lstrip() if whole else word
            for piece in _pieces(word, left, width - 2):
                if cell_len(piece) > left:
                    lines.append([("  ", "")])
                    left = width - 2
                lines[-1].append((piece, style))
                left -= cell_len(piece)
    return lines


def _pieces(word: str, first: int, rest: int) -> list[str]:
    """The word in pieces that fit into a line."""
    from rich.cells import chop_cells

    if len(word) <= first:
        return [word]
    return chop_cells(word, max(1, min(first, rest)))


CURVE = 40
"""The most characters of a curve of the run."""

_LEAST = 8


def answer(snapshot: Snapshot) -> Line:
    """Run, outcome, step, rate, remaining time, loss, checkpoint."""
    return [(safe(text), style) for text, style in headline(snapshot.status_now)]


Values = list[tuple[float, float]]
"""The place of a value, and the value."""


def curves(series: Sequence[Series], width: int, *, fine: bool = True) -> Line:
    """Loss and rate in one line."""
    shown = [one for one in series if _moves(one.values)]
    line: Line = []
    for one in shown:
        label = " ".join(filter(None, [one.name, one.now, ""])) + " "
        room = min(CURVE, (width - 2 * (len(shown) - 1)) // len(shown) - len(label))
        if room >= _LEAST:
            drawn = curve(spread(list(one.values), room), room, fine=fine, from_zero=one.name in FROM_ZERO)
            line += [("  " if line else "", ""), (label, "dim"), (drawn, "cyan")]
    return line


def series_of(snapshot: Snapshot, histories: Histories, points: Sequence[Point]) -> list[Series]:
    """Loss and rate of the run: from event files since its start, otherwise since the screen was opened.

    Their figures are those of the first line: a point of an event file is older, or the mean of other steps.
    """
    figures = figures_of(snapshot.status_now)
    losses = _at_steps(points) if len(points) > 1 else _in_order(histories.run_loss)
    rates = _at_steps(rates_of(points)) if len(points) > 2 else _in_order(histories.run_rate)
    rate = f"{figures.rate:.3g}" if figures.rate else ""
    return [Series("loss", losses, figures.loss or ""), Series("steps/s", rates, rate)]


def _bar(snapshot: Snapshot, width: int, *, fine: bool) -> list[Line]:
    """How much of the run is done, over the whole width."""
    done = figures_of(snapshot.status_now).share
    return [bar(done, width - len(" 100%"), fine=fine)] if done is not None else []


def _at_steps(points: Sequence[Point]) -> Values:
    return [(float(one.step), one.value) for one in points]


def _in_order(history: History) -> Values:
    return [(float(place), value) for place, value in enumerate(history.values)]


def _moves(values: Sequence[tuple[float, float]]) -> bool:
    return sum(math.isfinite(value) for _, value in values) > 1


def spread(values: Values, most: int) -> list[float]:
    """The values as at most `most` means, one of each part; an empty part has the value of the part before."""
    if len(values) <= most:
        return [value for _, value in values]
    first, last = min(place for place, _ in values), max(place for place, _ in values)
    parts: list[list[float]] = [[] for _ in range(most)]
    for place, value in values:
        if math.isfinite(value):
            parts[min(most - 1, int((place - first) / ((last - first) or 1.0) * most))].append(value)
    found: list[float] = []
    for part in parts:
        found.append(math.fsum(part) / len(part) if part else (found[-1] if found else math.nan))
    return found


def problems(snapshot: Snapshot, most: int) -> list[Line]:
    """The problems in at most `most` lines; the last one counts the rest."""
    lines = [
        *_contacts(snapshot),
        *_cause(snapshot),
        *_problem(snapshot),
        *_task_lines(snapshot),
        *_run_lines(snapshot),
        *([_line("yellow", "slow", snapshot.slow, "dtctl speed")] if snapshot.slow else []),
    ]
    if len(lines) <= max(1, most):
        return lines
    if most <= 1:
        return lines[:1]
    return [*lines[: most - 1], [(f"and {count(len(lines) - most + 1, 'more line')}: dtctl status", "dim")]]


def _contacts(snapshot: Snapshot) -> Iterator[Line]:
    """Hosts that cannot be queried. If none can be, everything below is outdated."""
    for host, away in snapshot.broken.items():
        again = "" if away.final else "; tried again"
        yield _line("bold red", f"{host} cannot be asked", f"{away.error.summary}{again}")
    for row in error_rows(
        {host: error for host, error in snapshot.status.errors.items() if host not in snapshot.broken}
    ):
        yield _line("bold red", "no answer", row.text)


def _cause(snapshot: Snapshot) -> Iterator[Line]:
    """The first failure of a failed run: the others followed from it."""
    status, cause = snapshot.status, snapshot.status.verdict.cause
    if cause is None or not _has_failed(snapshot) or cause in snapshot.problem.ended:
        return
    why = brief(how_it_ended(status.tasks[cause])) or brief(status.verdict.why)
    yield _line("bold red", f"{cause} on {status.tasks[cause].host} failed first", why, f"dtctl logs {cause}")


def _has_failed(snapshot: Snapshot) -> bool:
    return snapshot.status.verdict.outcome is Outcome.FAILED and snapshot.status.verdict.cause in snapshot.status.tasks


def _problem(snapshot: Snapshot) -> Iterator[Line]:
    for number, text in enumerate(snapshot.problem.lines):
        yield [(safe(text), "" if number else "bold red")]


def _task_lines(snapshot: Snapshot) -> Iterator[Line]:
    """Tasks in trouble; those with the same note share a line."""
    status = snapshot.status_now
    said = snapshot.problem.ended | ({status.verdict.cause} if _has_failed(snapshot) else set())
    wrong = [task for task in status.tasks.values() if task.state in TROUBLE and task.id not in said]
    alike = grouped(((task.state, note(task, status)), task) for task in wrong)
    for (state, why), tasks in sorted(alike.items(), key=lambda pair: WORST_FIRST.index(pair[0][0])):
        who = ", ".join(map(str, _first_tasks([task.id for task in tasks])))
        where = fold(dict.fromkeys(task.host for task in tasks))
        yield _line(STATE_STYLE[state], f"{who} on {where} ({state.value})", why)


def _first_tasks(tasks: list[TaskId]) -> list[TaskId | str]:
    return [*tasks] if len(tasks) <= 4 else [*tasks[:3], f"{len(tasks) - 3} more"]


def _run_lines(snapshot: Snapshot) -> Iterator[Line]:
    status, coordination = snapshot.status, snapshot.status.coordination
    if status.going_on_after_the_end:
        yield _line("", "ending", ", ".join(map(str, _first_tasks(list(status.going_on_after_the_end)))))
    if coordination is None:
        return
    waits_for = sentence(why_of(coordination.view["waits_for"]))
    if waits_for and not status.verdict.outcome.decided:
        yield _line("yellow", "waiting", waits_for)
    if coordination.lost_hosts:
        yield _line("magenta", f"{fold(coordination.lost_hosts)} away", "their agents do not answer the coordinator")
    if coordination.drained_hosts:
        command = f"dtctl undrain {coordination.drained_hosts[0]}"
        yield _line("yellow", f"{fold(coordination.drained_hosts)} drained", "", command)
    named = {task.id for task in status.tasks.values() if task.state in TROUBLE or task.id in snapshot.problem.ended}
    open_ones = [one for one in coordination.view["incidents"] if is_open(one)]
    for incident in open_ones[-2:]:
        if TaskId.parse(incident["task"]) in named:
            continue  # its own line says the same
        yield _line("yellow", "", incident_lines(incident, snapshot.now)[0])
    for text in warnings(coordination.view):
        yield _line("yellow", "warning", text)


def _line(style: str, what: str, why: str, command: str = "") -> Line:
    pieces = [(safe(what), style), (": " if what and why else "", ""), (safe(why), "" if what else style)]
    return [*pieces, *([(f"   {safe(command)}", _COMMAND)] if command else [])]
