"""Progress on stderr: bars for a start, and the tasks that still save during a stop."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dtctl.agent.records.answers import Departing
from dtctl.errors import DtctlError
from dtctl.model import TaskId, grouped
from dtctl.operations.client import Progress
from dtctl.render.awaiting import dialling_line, failures_noted, waiting_for
from dtctl.render.format import duration, fold
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import LastLine, Redrawn, moving

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from dtctl.operations.stop import Stopping


MOST_LINES = 30
"""The most lines without a terminal; a stop of many tasks prints no more until its result."""

_SHOWN_TASKS = 4
_SIGKILL = 9


class StopProgress(ExitStack):
    """One updated line on a terminal, elsewhere a line for each change; with `quiet` nothing. A context manager.

    `dialled`: hosts that have not answered yet, and since when; `failed`: those that cannot be reached.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        dialled: Callable[[], Mapping[str, float]] = dict,
        failed: Callable[[], Mapping[str, DtctlError]] = dict,
    ) -> None:
        super().__init__()
        self._quiet = quiet
        self._dialled = dialled
        self._failed = failed
        self._lock = threading.Lock()
        self._grace_s = 0.0
        self._tasks: dict[TaskId, Departing] = {}
        self._heard: dict[TaskId, float] = {}
        """When each task was last reported, by the monotonic clock: the seconds since then are counted here."""
        self._lines = 0
        self._last = ""

    def __enter__(self) -> StopProgress:
        if not self._quiet and console.interactive():
            self.enter_context(moving(LastLine(self._line)))
            self._quiet = True
        elif not self._quiet:
            self.enter_context(failures_noted(self._dialled, self._failed))
        return self

    def __call__(self, stopping: Stopping) -> None:
        """Records a report. May be called from any thread."""
        now = time.monotonic()
        with self._lock:
            self._grace_s = stopping.grace_s
            self._tasks.update(stopping.tasks)
            self._heard.update(dict.fromkeys(stopping.tasks, now))
            if not self._quiet:
                self._print(stopping_line(self._tasks, self._grace_s))

    @property
    def acknowledged(self) -> bool:
        """Whether a host has reported that it is stopping tasks."""
        return bool(self._tasks)

    def now(self) -> str:
        """The line as of now: seconds since the last report are added."""
        now = time.monotonic()
        with self._lock:
            counted = {task: _later(one, now - self._heard[task]) for task, one in self._tasks.items()}
            return stopping_line(counted, self._grace_s)

    def _print(self, line: str) -> None:
        if line != self._last and self._lines < MOST_LINES:
            console.report(line)
            self._last = line
            self._lines += 1

    def _line(self) -> str:
        width = console.columns() - 1
        awaited = dialling_line(self._dialled(), self._failed(), width)
        return "; ".join(filter(None, [self.now(), awaited]))[:width]


def _later(one: Departing, passed_s: float) -> Departing:
    counts = one["for_s"] is not None and one["way"] != "ended"
    return {**one, "for_s": (one["for_s"] or 0.0) + passed_s} if counts else one


def stopping_line(tasks: Mapping[TaskId, Departing], grace_s: float) -> str:
    """`1 of 4 ended; worker:0, worker:1 saving, 12 s of 30 s; ps:0 waits for them`; empty before any report."""
    ways: dict[str, list[TaskId]] = grouped((tasks[task]["way"], task) for task in sorted(tasks))
    ended, killed = ways.get("ended", []), ways.get("killed", [])
    parts = [f"{len(ended)} of {len(tasks)} ended"] if ended else []
    shot = [task for task in ended if tasks[task]["signal"] == _SIGKILL]
    if shot:
        parts.append(f"{_named(shot)}: SIGKILL after {_span(_longest(tasks, shot) or grace_s)}")
    if saving := ways.get("saving", []):
        for_s = _longest(tasks, saving)
        how_long = "" if for_s is None else f", {_span(for_s)} of {_span(grace_s)}"
        parts.append(f"{_named(saving)} saving{how_long}")
    if killed:
        parts.append(f"{_named(killed)}: still there after SIGKILL")
    if waits := ways.get("waits", []):
        parts.append(f"{_named(waits)} to be ended after them" if saving else f"{_named(waits)} to be ended")
    if away := ways.get("away", []):
        parts.append(f"{_named(away)} unreachable")
    return "; ".join(parts)


def _named(tasks: Collection[TaskId]) -> str:
    names = [str(task) for task in tasks]
    return ", ".join(names) if len(names) <= _SHOWN_TASKS else fold(names)


def _longest(tasks: Mapping[TaskId, Departing], some: Collection[TaskId]) -> float | None:
    return max((for_s for task in some if (for_s := tasks[task]["for_s"]) is not None), default=None)


def _span(seconds: float) -> str:
    """12 s; from two minutes on in minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else duration(seconds)


_WORDS = {"send": "sending", "receive": "writing", "setup": "setting up", "verify": "checking"}
_WORDS |= {"pull": "receiving", "check": "inspecting"}
_OVER = ("prepared", "started", "failed")
_SHOWN_HOSTS = 12
_SHOWN_NOTE = 200


class UpProgress(ExitStack):
    """Shows the reports of `up` and `push`; without a terminal only which hosts were set up. A context manager.

    `rates`: with the speed and the remaining time.
    """

    def __init__(self, hosts: Iterable[str], *, quiet: bool = False, rates: bool = False) -> None:
        super().__init__()
        self._hosts = list(hosts)
        self._lock = threading.Lock()
        self._bars: Bars | None = None if quiet or not console.interactive() else _bars(rates=rates)
        self._quiet = quiet
        self._busy: dict[str, Progress] = {}
        """The current work of hosts that are reached and not ready, in the order in which they were reached."""
        self._rows: dict[str, TaskID] = {}
        """The rows of the first of these hosts."""
        self._since: dict[str, float] = {}
        """Hosts whose connection is being made, and since when."""
        self._setup_since: dict[str, float] = {}
        self._bytes: dict[str, tuple[int, int]] = {}
        self._ready: set[str] = set()
        self._failed: set[str] = set()
        self._all: TaskID | None = None
        self._waits = False
        self._ends = StopProgress(quiet=quiet or self._bars is not None)

    def __enter__(self) -> UpProgress:
        if self._bars is not None:
            bars = self._bars
            self.enter_context(moving(Redrawn(lambda: _shown(bars, self._connecting))))
            self._all = self._bars.add_task(self._overall(), total=None, note="")
        return self

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            if self._bars is not None and self._all is not None:
                self._draw(self._bars, self._all, progress)
            elif progress.phase == "setup":
                self._setup_since.setdefault(progress.host, time.monotonic())
            elif (since := self._setup_since.pop(progress.host, None)) is not None and not self._quiet:
                how = "setup failed after" if progress.phase == "failed" else "set up in"
                console.report(f"{progress.host}: {how} {_span(time.monotonic() - since)} (dtctl logs --setup)")

    def ending(self, stopping: Stopping) -> None:
        """Shows the progress of ending the run that a new one replaces."""
        self._ends(stopping)
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, description="ending the earlier run", note=self._ends.now)

    def waiting(self, for_what: str) -> None:
        """Shows what the start waits for; called once a second."""
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, description=for_what, note="")
        elif not (self._quiet or self._waits):
            console.report(for_what)
        self._waits = True

    def _connecting(self) -> str:
        """The hosts that have not been reached for a while."""
        # Called without our lock: rich calls this with its own lock, and threads that hold ours may wait for that one.
        now = time.monotonic()
        waits = {host: now - since for host, since in dict(self._since).items()}
        return waiting_for(waits, console.columns() - 1, "connecting to")

    def _overall(self) -> str:
        return f"{len(self._ready)} of {len(self._hosts)} hosts ready" + (
            f", {len(self._failed)} failed" if self._failed else ""
        )

    def _draw(self, bars: Bars, overall: TaskID, progress: Progress) -> None:
        self._sort(progress)
        self._fill_rows(bars, progress.host)
        done, total = (sum(column) for column in zip(*self._bytes.values(), strict=True)) if self._bytes else (0, 0)
        bars.update(
            overall,
            description=self._overall(),
            completed=done,
            total=total or None,
        )

    def _sort(self, progress: Progress) -> None:
        """Records a host as being connected, busy, ready or failed."""
        host = progress.host
        self._since.pop(host, None)
        if progress.phase in _OVER:
            self._busy.pop(host, None)
            (self._failed if progress.phase == "failed" else self._ready).add(host)
        elif progress.phase == "connect":
            self._since[host] = time.monotonic()
        else:
            self._busy[host] = progress
            if progress.total:
                self._bytes[host] = (progress.done, progress.total)

    def _fill_rows(self, bars: Bars, changed: str) -> None:
        """Gives the rows of finished hosts to the next ones."""
        for host in self._rows.keys() - self._busy.keys():
            bars.remove_task(self._rows.pop(host))
        without = (host for host in self._busy if host not in self._rows)
        new = list(itertools.islice(without, _SHOWN_HOSTS - len(self._rows)))
        self._rows.update((host, bars.add_task(host, total=None, note="")) for host in new)
        for host in {*new, changed} & self._rows.keys():
            report = self._busy[host]
            note = report.text.splitlines()[-1] if report.text else _WORDS.get(report.phase, report.phase)
            bars.update(self._rows[host], completed=report.done, total=report.total or None, note=note)


def _bars(*, rates: bool) -> Bars:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        Task,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    from dtctl.render.terminal.rich_console import text

    class Name(ProgressColumn):
        def render(self, task: Task) -> Text:
            return text(task.description)

    class Note(ProgressColumn):
        """The current work of a host, short enough to be drawn eight times a second; or a function that returns it."""

        def render(self, task: Task) -> Text:
            note = task.fields["note"]
            return text(((note() if callable(note) else note)[:_SHOWN_NOTE], "dim"))

    class Bytes(DownloadColumn):
        """The transferred bytes; empty if nothing is measured."""

        def render(self, task: Task) -> Text:
            return text() if task.total is None else super().render(task)

    return Progress(
        Name(),
        BarColumn(bar_width=24),
        Bytes(),
        *([TransferSpeedColumn(), TimeRemainingColumn(compact=True)] if rates else []),
        Note(),
        console=console.err(),
    )


def _shown(bars: Bars, below: Callable[[], str]) -> Live:
    from rich.console import Group
    from rich.live import Live

    from dtctl.render.terminal.rich_console import cropped

    def drawn() -> Group:
        line = cropped(below(), "dim")
        return Group(bars.get_renderable(), *([line] if line else []))

    bars.live = Live(get_renderable=drawn, console=bars.console, transient=True, refresh_per_second=8)
    return bars.live
