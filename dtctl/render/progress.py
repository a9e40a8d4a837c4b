"""Progress bars on stderr: one for each host that is busy, and one for all of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from dtctl.operations.client.conversation import Progress
from dtctl.operations.stopping import Stopping
from dtctl.render.awaiting import waiting_for
from dtctl.render.stopping import StopProgress
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import Redrawn, moving

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

_WORDS = {"send": "sending", "receive": "writing", "setup": "setting up", "verify": "checking"}
_WORDS |= {"pull": "receiving", "check": "looking"}
_OVER = ("prepared", "started", "failed")
_SHOWN_HOSTS = 12
_SHOWN_NOTE = 200


class UpProgress:
    """Shows what `up` and `push` report; off a terminal only what setup commands print. A context manager."""

    def __init__(self, hosts: Iterable[str], *, quiet: bool = False) -> None:
        self._hosts = list(hosts)
        self._lock = threading.Lock()
        self._bars: Bars | None = None if quiet or not console.interactive() else _bars()
        self._quiet = quiet
        self._busy: dict[str, Progress] = {}
        """What each host does that is reached and not ready, in the order in which they were reached."""
        self._rows: dict[str, TaskID] = {}
        """Of the first of these."""
        self._since: dict[str, float] = {}
        """Hosts that are being connected to."""
        self._bytes: dict[str, tuple[int, int]] = {}
        self._ready: set[str] = set()
        self._failed: set[str] = set()
        self._all: TaskID | None = None
        self._ends = StopProgress(quiet=quiet or self._bars is not None)
        self._until = ExitStack()

    def __enter__(self) -> UpProgress:
        if self._bars is not None:
            bars = self._bars
            self._until.enter_context(moving(Redrawn(lambda: _shown(bars, self._connecting))))
            self._all = self._bars.add_task(self._overall(), total=None, note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._until.close()

    def __call__(self, progress: Progress) -> None:
        with self._lock:
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

    def _connecting(self) -> str:
        """Whom nobody has reached for a while."""
        # Without the lock: rich asks with its own, for which those wait who change rows with ours.
        now = time.monotonic()
        waits = {host: now - since for host, since in dict(self._since).items()}
        return waiting_for(waits, console.columns() - 1, " to connect")

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
        """Into those that are connected to, that are busy, that are ready, and that have failed."""
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
        """Where one is done, the next that waits for a row has its place."""
        for host in self._rows.keys() - self._busy.keys():
            bars.remove_task(self._rows.pop(host))
        without = (host for host in self._busy if host not in self._rows)
        new = list(itertools.islice(without, _SHOWN_HOSTS - len(self._rows)))
        self._rows.update((host, bars.add_task(host, total=None, note="")) for host in new)
        for host in {*new, changed} & self._rows.keys():
            told = self._busy[host]
            note = told.text.splitlines()[-1] if told.text else _WORDS.get(told.phase, told.phase)
            bars.update(self._rows[host], completed=told.done, total=told.total or None, note=note)


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


def _shown(bars: Bars, below: Callable[[], str]) -> Live:
    from rich.console import Group
    from rich.live import Live

    from dtctl.render.terminal.rich_console import text

    def drawn() -> Group:
        line = text((below(), "dim"))
        line.no_wrap, line.overflow = True, "crop"
        return Group(bars.get_renderable(), *([line] if line else []))

    bars.live = Live(get_renderable=drawn, console=bars.console, transient=True, refresh_per_second=8)
    return bars.live
