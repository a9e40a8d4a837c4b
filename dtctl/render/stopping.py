"""Who still saves while a stop waits, and how the others have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from dtctl.errors import DtctlError
from dtctl.model import TaskId
from dtctl.operations.stopping import Leaving, Stopping
from dtctl.render.awaiting import dialling_line
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import moving
from dtctl.render.words import duration, fold

if TYPE_CHECKING:
    from rich.live import Live

MOST_LINES = 30
"""Off a terminal; a stop of many tasks tells no more until its result."""

_SHOWN_TASKS = 4
_SIGKILL = 9


class StopProgress:
    """One line that counts on a terminal, elsewhere one for each change; with `quiet` nothing. A context manager.

    `dialled`, for that line: hosts that have not answered yet, and since when; `failed`: those that cannot be asked.
    """

    def __init__(
        self,
        *,
        quiet: bool = False,
        dialled: Callable[[], Mapping[str, float]] = dict,
        failed: Callable[[], Mapping[str, DtctlError]] = dict,
    ) -> None:
        self._quiet = quiet
        self._dialled = dialled
        self._failed = failed
        self._lock = threading.Lock()
        self._grace_s = 0.0
        self._tasks: dict[TaskId, Leaving] = {}
        self._heard: dict[TaskId, float] = {}
        """By the monotonic clock: the seconds since are counted here."""
        self._lines = 0
        self._last = ""
        self._until = ExitStack()

    def __enter__(self) -> StopProgress:
        if not self._quiet and console.interactive():
            self._until.enter_context(moving(self._live()))
            self._quiet = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until.close()

    def __call__(self, told: Stopping) -> None:
        """From any thread."""
        now = time.monotonic()
        with self._lock:
            self._grace_s = told.grace_s
            self._tasks.update(told.tasks)
            self._heard.update(dict.fromkeys(told.tasks, now))
            if not self._quiet:
                self._print(stopping_line(self._tasks, self._grace_s))

    @property
    def heard(self) -> bool:
        """Whether a host has said that it is at it."""
        return bool(self._tasks)

    def now(self) -> str:
        """The line as it is at this moment: what nobody has told since is counted on."""
        now = time.monotonic()
        with self._lock:
            counted = {
                task: Leaving(one.way, _later(one, now - self._heard[task]), one.signal)
                for task, one in self._tasks.items()
            }
            return stopping_line(counted, self._grace_s)

    def _print(self, line: str) -> None:
        if line != self._last and self._lines < MOST_LINES:
            console.tell(line)
            self._last = line
            self._lines += 1

    def _live(self) -> Live:
        from rich.live import Live

        from dtctl.render.terminal.rich_console import text

        def draw() -> object:
            awaited = dialling_line(self._dialled(), self._failed(), console.columns() - 1)
            line = text("; ".join(filter(None, [self.now(), awaited])))
            line.no_wrap, line.overflow = True, "crop"
            return line

        return Live(get_renderable=draw, console=console.err(), transient=True, refresh_per_second=4)  # type: ignore[arg-type]


def _later(one: Leaving, passed_s: float) -> float | None:
    return one.for_s if one.for_s is None or one.way == "ended" else one.for_s + passed_s


def stopping_line(tasks: Mapping[TaskId, Leaving], grace_s: float) -> str:
    """`1 of 4 ended; worker:0, worker:1 saving, 12 s of 30 s; ps:0 waits for them`; nothing before it is known."""
    ways: dict[str, list[TaskId]] = {}
    for task in sorted(tasks):
        ways.setdefault(tasks[task].way, []).append(task)
    ended, killed = ways.get("ended", []), ways.get("killed", [])
    parts = [f"{len(ended)} of {len(tasks)} ended"] if ended else []
    shot = [task for task in ended if tasks[task].signal == _SIGKILL]
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
        parts.append(f"{_named(away)} out of reach")
    return "; ".join(parts)


def _named(tasks: Collection[TaskId]) -> str:
    names = [str(task) for task in tasks]
    return ", ".join(names) if len(names) <= _SHOWN_TASKS else fold(names)


def _longest(tasks: Mapping[TaskId, Leaving], some: Collection[TaskId]) -> float | None:
    return max((for_s for task in some if (for_s := tasks[task].for_s) is not None), default=None)


def _span(seconds: float) -> str:
    """12 s; from two minutes on as everywhere."""
    return f"{seconds:.0f} s" if seconds < 120 else duration(seconds)
