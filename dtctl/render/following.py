"""What stays at the bottom of a terminal while a run is followed: its progress, and while it starts a line a host."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dtctl.agent.records.reasons import sentence, why_of
from dtctl.model import TaskState, grouped
from dtctl.operations.figures import Figures, figures_of
from dtctl.operations.snapshot import RunStatus, TaskStatus
from dtctl.render.format import count, duration, fold
from dtctl.render.roster import STATE_STYLE, TROUBLE
from dtctl.render.status import OUTCOME_STYLE, SEPARATOR, pace, position_of
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import Drawn, LastLines, moving

if TYPE_CHECKING:
    from rich.text import Text

MOST_HOSTS = 8
"""The most lines of hosts; the hosts beyond them share one."""

_BAR = 16
_LEAST_FOR_BAR = 60
"""The columns of a terminal that has room for a bar beside the numbers."""

Piece = tuple[str, str]
"""Text and style."""


class FollowedRun(ExitStack):
    """Shows the lines on a terminal; elsewhere nothing, as the output is for programs. A context manager."""

    def __init__(self, *, shown: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.shown = shown and console.interactive() and console.on_terminal()
        self._clock = clock
        self._status: RunStatus | None = None
        self._seen_at = 0.0
        self._display = LastLines(self._drawn)

    def __enter__(self) -> FollowedRun:
        if self.shown:
            self.enter_context(moving(self._display))
        return self

    def see(self, status: RunStatus) -> None:
        """Shows this state from now on."""
        self._status, self._seen_at = status, self._clock()
        if self.shown:
            self._display.draw()

    def _drawn(self) -> Sequence[Drawn]:
        status = self._status
        if status is None or status.verdict.outcome.decided:
            return ()
        now = dataclasses.replace(status, time=status.time + self._clock() - self._seen_at)
        screen = console.err()
        lines = bottom_lines(now, screen.width - 1, min(MOST_HOSTS, screen.height // 3))
        return [Drawn(screen.written(line), line.cell_len) for line in lines]


def bottom_lines(status: RunStatus, width: int, most_hosts: int = MOST_HOSTS) -> list[Text]:
    """The lines for a terminal of this width, none of them wider."""
    bars = console.can_show("━╸", stderr=True)
    return [*(_fitted(line, width) for line in host_lines(status, most_hosts)), run_line(status, width, bars=bars)]


def host_lines(status: RunStatus, most: int) -> list[list[Piece]]:
    """A line for each host while the run starts: its tasks, their state and since when; none after that."""
    if not is_starting(status):
        return []
    by_host = grouped((task.host, task) for task in status.tasks.values())
    hosts = list(by_host)
    shown = hosts if len(hosts) <= most else hosts[: max(1, most - 1)]
    wide = max(len(host) for host in shown)
    lines = [[(f"{host:<{wide}}  ", "bold"), *_states(by_host[host], status.time)] for host in shown]
    if len(shown) < len(hosts):
        rest = [task for host in hosts[len(shown) :] for task in by_host[host]]
        more = count(len(hosts) - len(shown), "more host")
        lines.append([(f"{more}: ", "bold"), *_states(rest, status.time)])
    return lines


def is_starting(status: RunStatus) -> bool:
    coordination = status.coordination
    return coordination is not None and coordination.view["phase"] == "starting" and not status.verdict.outcome.decided


def _states(tasks: Sequence[TaskStatus], now: float) -> list[Piece]:
    pieces: list[Piece] = []
    for state, some in grouped((task.state, task) for task in tasks).items():
        since = [task.entry["since"] for task in some if task.entry["since"]]
        ago = f" {duration(now - max(since))}" if since and now else ""
        between = ", " if pieces else ""
        pieces += [
            (f"{between}{fold(str(task.id) for task in some)} ", ""),
            (state.value, STATE_STYLE.get(state, "")),
            (ago, "dim"),
        ]
    return pieces


def run_line(status: RunStatus, width: int, *, bars: bool = True) -> Text:
    """Step, rate, remaining time, loss, states and restarts; what has no room is left out, the last first."""
    figures = figures_of(status)
    parts = [part for part in [_progress(figures), *_facts(status, figures)] if part]
    done = figures.share if width >= _LEAST_FOR_BAR else None
    head = bar(done, _BAR, fine=bars) if done is not None else []
    while True:
        line = [*head]
        for part in parts:
            line += [(SEPARATOR if line else "", "dim"), *part]
        text = _text(line)
        if text.cell_len <= width or len(parts) <= 1:
            text.truncate(max(1, width))
            return text
        parts.pop()


def _progress(figures: Figures) -> list[Piece]:
    if figures.position is not None:
        return [(position_of(figures.position), "bold")]
    if figures.step is not None:
        return [(f"step {figures.step}" + (f"/{figures.target}" if figures.target is not None else ""), "bold")]
    return []


def _facts(status: RunStatus, figures: Figures) -> list[list[Piece]]:
    outcome = status.verdict.outcome
    states = grouped((task.state, task) for task in status.tasks.values())
    running, tasks = len(states.get(TaskState.RUNNING, ())), len(status.tasks)
    trouble: list[Piece] = [
        (f", {len(states[state])} {state.value}", STATE_STYLE[state]) for state in TROUBLE if state in states
    ]
    word: Piece = (outcome.value.lower(), OUTCOME_STYLE.get(outcome, ""))
    facts: list[list[Piece]] = [[(text, "")] for text in pace(figures)]
    if figures.loss is not None:
        facts.append([(f"loss {figures.loss}", "")])
    facts.append([word, (f" {running}/{tasks}", ""), *trouble])
    coordination = status.coordination
    if figures.restarts:
        facts.append([(count(figures.restarts, "restart"), "yellow")])
    waits = sentence(why_of(coordination.view["waits_for"])) if coordination is not None else ""
    if waits and not is_starting(status):
        facts.append([(waits, "dim")])
    if figures.elapsed_s is not None:
        facts.append([(f"{duration(figures.elapsed_s)} since the start", "dim")])
    return facts


def bar(done: float, width: int, *, fine: bool) -> list[Piece]:
    """A share from 0 to 1 as a bar of this width, with its percentage after it."""
    full = int(done * width)
    whole, rest = ("━", "━") if fine else ("#", "-")
    return [(whole * full, "green"), (rest * (width - full), "dim"), (f" {100 * done:.0f}%", "")]


def _fitted(pieces: list[Piece], width: int) -> Text:
    line = _text(pieces)
    line.truncate(max(1, width), overflow="ellipsis" if console.can_show("…", stderr=True) else "crop")
    return line


def _text(pieces: Sequence[Piece]) -> Text:
    from dtctl.render.terminal.rich_console import text

    return text(*(piece for piece in pieces if piece[0]))
