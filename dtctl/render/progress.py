"""Progress bars on stderr: one for each host that is busy, and one for all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from dtctl.operations.asking.conversation import Progress
from dtctl.operations.stopping import Stopping
from dtctl.render.stopping import StopProgress
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import Redrawn, moving

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_WORDS = {"connect": "connecting", "send": "sending", "receive": "writing", "setup": "setting up", "verify": "checking"}
_WORDS |= {"pull": "receiving", "check": "looking"}
_DONE = ("prepared", "started")
_SHOWN_HOSTS = 12
_SHOWN_TASKS = 3
_SHOWN_NOTE = 200


class UpProgress:
    """Shows what `up` and `push` report; off a terminal only what setup commands print. A context manager."""

    def __init__(self, hosts: Iterable[str], *, quiet: bool = False) -> None:
        self._hosts = list(hosts)
        self._lock = threading.Lock()
        self._bars: Bars | None = None if quiet or not console.interactive() else _bars()
        self._quiet = quiet
        self._rows: dict[str, TaskID] = {}
        self._bytes: dict[str, tuple[int, int]] = {}
        self._ready: set[str] = set()
        self._starting: dict[str, Mapping[str, str]] = {}
        """What the hosts that start their tasks wait for."""
        self._all: TaskID | None = None
        self._ends = StopProgress(quiet=quiet or self._bars is not None)
        self.starting = False
        """Tasks have been let start."""
        self._until = ExitStack()

    def __enter__(self) -> UpProgress:
        if self._bars is not None:
            bars = self._bars
            self._until.enter_context(moving(Redrawn(lambda: _shown(bars))))
            self._all = self._bars.add_task(_overall(0, len(self._hosts)), total=None, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until.close()

    def __call__(self, progress: Progress) -> None:
        with self._lock:
            self.starting = self.starting or progress.phase in ("start", "started")
            if self._bars is not None and self._all is not None:
                self._draw(self._bars, self._all, progress)
            elif progress.phase == "setup" and progress.text and not self._quiet:
                for line in progress.text.splitlines():
                    console.tell(f"{progress.host} setup | {line}")

    def ending(self, told: Stopping) -> None:
        """How far the run is that a new one replaces."""
        self._ends(told)
        if self._bars is not None and self._all is not None:
            self._bars.update(self._all, description="ending the earlier run", note=self._ends.now)

    def _draw(self, bars: Bars, overall: TaskID, progress: Progress) -> None:
        host = progress.host
        if progress.phase == "start":
            self._starting[host] = progress.tasks
            bars.update(overall, description="starting", note=awaited(self._starting.values()))
            return
        if progress.phase in _DONE:
            self._starting.pop(host, None)
            self._ready.add(host)
            if host in self._rows:
                bars.remove_task(self._rows.pop(host))
        else:
            if host not in self._rows and len(self._rows) < _SHOWN_HOSTS:
                self._rows[host] = bars.add_task(host, total=None, note="")
            if progress.total:
                self._bytes[host] = (progress.done, progress.total)
            if host in self._rows:
                note = progress.text.splitlines()[-1] if progress.text else _WORDS.get(progress.phase, progress.phase)
                bars.update(self._rows[host], completed=progress.done, total=progress.total or None, note=note)
        done, total = (sum(column) for column in zip(*self._bytes.values(), strict=True)) if self._bytes else (0, 0)
        bars.update(
            overall,
            description=_overall(len(self._ready), len(self._hosts)),
            completed=done,
            total=total or None,
            note=awaited(self._starting.values()),
        )


def awaited(told: Iterable[Mapping[str, str]]) -> str:
    """Of the tasks of all hosts, and what they do, those that others wait for: `ps:0 starting; worker:1 backoff`."""
    waits = {"waits_to_listen": "running, waits to listen"}
    tasks = [
        f"{task} {waits.get(doing, doing)}"
        for each in told
        for task, doing in each.items()
        if doing not in ("held", "running")
    ]
    more = len(tasks) - _SHOWN_TASKS
    return "; ".join(tasks[:_SHOWN_TASKS]) + (f" and {more} more" if more > 0 else "")


def _overall(ready: int, hosts: int) -> str:
    return f"{ready} of {hosts} hosts ready"


def _bars() -> Bars:
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task
    from rich.text import Text

    from dtctl.render.terminal.rich_console import text

    class Name(ProgressColumn):
        def render(self, task: Task) -> Text:
            return text(task.description)

    class Note(ProgressColumn):
        """What a host is doing, short enough to be drawn eight times a second; or what tells it, where it changes."""

        def render(self, task: Task) -> Text:
            note = task.fields["note"]
            return text(((note() if callable(note) else note)[:_SHOWN_NOTE], "dim"))

    class Bytes(DownloadColumn):
        """Nothing, where nothing is measured."""

        def render(self, task: Task) -> Text:
            return text() if task.total is None else super().render(task)

    return Progress(
        Name(),
        BarColumn(bar_width=24),
        Bytes(),
        Note(),
        console=console.err(),
    )


def _shown(bars: Bars) -> Live:
    from rich.live import Live

    bars.live = Live(get_renderable=bars.get_renderable, console=bars.console, transient=True, refresh_per_second=8)
    return bars.live
