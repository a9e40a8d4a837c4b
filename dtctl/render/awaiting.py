"""The output of a command that runs on hosts, and below it one line with the hosts that are still awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from dtctl.errors import DtctlError
from dtctl.operations.client import Progress
from dtctl.render.errors import note
from dtctl.render.format import fold
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import LastLine, moving
from dtctl.render.terminal.safe import log_lines, one_line

SHOWN_AFTER_S = 1.0
"""The line is shown only after this time."""

WAITED_S = 2.0
"""Hosts count as awaited after this time; the others are simply working."""

LOOKED_EVERY_S = 0.5
LONGEST_NOTE = 500


class Awaiting(ExitStack):
    """The line on a terminal; elsewhere nothing. A context manager, and a `Report` of starts and ends."""

    def __init__(self, total: int, *, shown: bool = True) -> None:
        super().__init__()
        self._total = total
        self._shown = shown
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        """When each unfinished host began."""
        self._done = 0
        self._begun = time.monotonic()

    def __enter__(self) -> Awaiting:
        if self._shown and console.interactive():
            self.enter_context(moving(LastLine(self._now)))
        return self

    def __call__(self, progress: Progress) -> None:
        """Records progress. May be called from any thread."""
        with self._lock:
            if progress.phase == "done":
                self._since.pop(progress.host, None)
                self._done += 1
            else:
                self._since.setdefault(progress.host, time.monotonic())

    def _now(self) -> str:
        now = time.monotonic()
        if now - self._begun < SHOWN_AFTER_S:
            return ""
        with self._lock:
            waits = {place: now - since for place, since in self._since.items()}
            done = self._done
        return awaiting_line(done, self._total, waits, console.columns() - 1)


@contextmanager
def dialling(
    waits: Callable[[], Mapping[str, float]], failed: Callable[[], Mapping[str, DtctlError]] = dict
) -> Iterator[None]:
    """Shows, while a command connects to hosts before it prints anything, which have `failed` and which are awaited."""
    if not console.interactive():
        with failures_noted(waits, failed):
            yield
        return
    with moving(LastLine(lambda: dialling_line(waits(), failed(), console.columns() - 1))):
        yield


@contextmanager
def failures_noted(
    waits: Callable[[], Mapping[str, float]], failed: Callable[[], Mapping[str, DtctlError]]
) -> Iterator[None]:
    """Prints a line when another host has definitely failed while others are still awaited."""
    over = threading.Event()

    def refresh() -> None:
        shown = 0
        while not over.wait(LOOKED_EVERY_S):
            awaited, known = waits(), failed()
            certain = len(known.keys() - awaited.keys())
            line = dialling_line(awaited, known, LONGEST_NOTE)
            if line and certain > shown:
                shown = certain
                note(line)

    looking = threading.Thread(target=refresh, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def dialling_line(waits: Mapping[str, float], failed: Mapping[str, DtctlError], width: int) -> str:
    """The line while hosts are awaited; definite failures come first."""
    line = waiting_for(waits, width, "connecting to")
    certain = [error for host, error in failed.items() if host not in waits]
    if not (line and certain):
        return line
    first, *more = certain
    return f"{one_line(first.summary)}{f' and {len(more)} more' if more else ''}; {line}"[:width]


def awaiting_line(done: int, total: int, waits: Mapping[str, float], width: int) -> str:
    """The progress, as in `260 of 300 done; waiting for @host-[5,15-17] and 20 more (12 s)`.

    `waits`: how long each unfinished host has taken.
    """
    head = f"{done} of {total} done"
    waiting = waiting_for(waits, width - len(head) - 2)
    return f"{head}; {waiting}" if waiting else head[:width]


def waiting_for(waits: Mapping[str, float], width: int, what: str = "waiting for") -> str:
    """The hosts that have taken long, and the longest time; if not all fit, those that took longest.

    `what`: what dtctl does, as in `connecting to`. It is empty if there are none.
    """
    slow = sorted((place for place, waited_s in waits.items() if waited_s >= WAITED_S), key=lambda place: -waits[place])
    if not slow:
        return ""
    shown = len(slow)
    while len(line := _sentence(slow, shown, what, waits[slow[0]])) > width and shown > 1:
        shown = shown * 3 // 4
    return line[: max(0, width)]


def _sentence(slow: Sequence[str], shown: int, what: str, waited_s: float) -> str:
    more = len(slow) - shown
    return f"{what} {fold(slow[:shown])}{f' and {more} more' if more else ''} ({waited_s:.0f} s)"


_LONGEST = 65536
"""The most bytes of a line that are kept until it ends; a longer line is shown in pieces."""


class OutputPrinter:
    """Prints whole lines, so that places do not mix within a line; bytes as they come if there is one place.

    On a terminal lines are made safe, unless `raw`. Elsewhere a program may read them (`-- tar c . | tar x`).
    """

    def __init__(self, targets: Sequence[str], *, raw: bool = False) -> None:
        self._width = max((len(place) for place in targets), default=0)
        self._alone = len(targets) == 1
        self._raw = {stream: raw or not console.on_terminal(stderr=stream == 2) for stream in (1, 2)}
        self._rests: dict[tuple[str, int], bytes] = {}
        self._lock = threading.Lock()

    def print(self, place: str, stream: int, data: bytes) -> None:
        stream = 2 if stream == 2 else 1
        with self._lock:
            if self._alone and self._raw[stream]:
                return console.pass_on(data, stderr=stream == 2)
            *lines, rest = (self._rests.pop((place, stream), b"") + data).split(b"\n")
            *begun, self._rests[place, stream] = _cut(rest)
            return self._write(place, stream, [piece for line in lines for piece in _cut(line)] + begun)

    def finish(self) -> None:
        """Writes lines without an end."""
        for (place, stream), rest in self._rests.items():
            if rest:
                self._write(place, stream, [rest])

    def _write(self, place: str, stream: int, lines: list[bytes]) -> None:
        head = "" if self._alone else f"{one_line(place).ljust(self._width)} | "
        if self._raw[stream]:
            console.pass_on(b"".join(head.encode() + line + b"\n" for line in lines), stderr=stream == 2)
            return
        color = console.colored(stderr=stream == 2)
        shown = log_lines(b"".join(line + b"\n" for line in lines), color=color)
        console.put("".join(f"{head}{line}\n" for line in shown), stderr=stream == 2)


def _cut(line: bytes) -> list[bytes]:
    """The line in pieces. Only the last may be empty; the cuts depend on the line alone."""
    return [line[start : start + _LONGEST] for start in range(0, max(1, len(line)), _LONGEST)]
