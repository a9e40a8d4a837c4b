"""Displays that are drawn repeatedly. They pause during a prompt, which they would otherwise erase."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

from dtctl.render.terminal.safe import one_line


class Display(Protocol):
    """The common methods of rich's Live and Progress. Both may be called repeatedly, and from any thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


D = TypeVar("D", bound=Display)


class Redrawn(Generic[D]):
    """A display of several lines, created again each time it is shown.

    A restarted Live of rich moves up by as many lines as it had, and erases what is there: the prompt.
    """

    def __init__(self, make: Callable[[], D]) -> None:
        self._make = make
        self.display = make()

    def start(self) -> None:
        self.display.start()

    def stop(self) -> None:
        self.display.stop()
        self.display = self._make()


_lock = threading.RLock()
_shown: list[Display] = []
_questions = 0


@contextmanager
def moving(display: Display) -> Iterator[None]:
    """Shows the display while this lasts, except during prompts."""
    with _lock:
        _shown.append(display)
        if not _questions:
            display.start()
    try:
        yield
    finally:
        with _lock:
            _shown.remove(display)
            display.stop()


@contextmanager
def still() -> Iterator[None]:
    """Nothing moves while this lasts. No lock is held meanwhile: the user may take long, or press Ctrl-C."""
    global _questions
    with _lock:
        _questions += 1
        for display in _shown:
            display.stop()
    try:
        yield
    finally:
        with _lock:
            _questions -= 1
            if not _questions:
                for display in _shown:
                    display.start()


REDRAWN_S = 0.5
_ERASE = "\r\x1b[2K"
_UP = "\x1b[1A\x1b[2K"

_writing = threading.RLock()
_drawn: Sequence[Drawn] = ()
"""The lines on the terminal; there is only one terminal, and so one such display."""
_stays = False
"""Whether they are written again below each output, and not only when they are next drawn."""


class Drawn(NamedTuple):
    """A line as it is written, with its escape sequences, and its columns."""

    written: str
    columns: int


class LastLine:
    """A `Display` (see moving.py). `text` returns the line each time; an empty one is not drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        self._ended = threading.Event()

    def start(self) -> None:
        self._ended = ended = threading.Event()
        threading.Thread(target=self._redraw, args=(ended,), name="last-line", daemon=True).start()

    def stop(self) -> None:
        with _writing:
            self._ended.set()
            _erase()

    def _redraw(self, ended: threading.Event) -> None:
        while not ended.wait(REDRAWN_S):
            with _writing:
                if not ended.is_set():
                    self.draw()

    def draw(self) -> None:
        line = one_line(self._text())
        _draw([Drawn(line, len(line))] if line else [], stays=False)


class LastLines(LastLine):
    """A `Display` of lines that stay at the bottom while output goes on above them. `lines` returns them each time."""

    def __init__(self, lines: Callable[[], Sequence[Drawn]]) -> None:
        super().__init__(str)
        self._lines = lines

    def start(self) -> None:
        self.draw()
        super().start()

    def draw(self) -> None:
        _draw(self._lines(), stays=True)


@contextmanager
def above() -> Iterator[None]:
    """Output in this context is above the lines, which appear again at its end, or when they are next drawn."""
    with _writing:
        lines, stays = _drawn, _stays
        _erase()
        yield
        if stays and lines:
            _draw(lines, stays=True)


def _draw(lines: Sequence[Drawn], *, stays: bool) -> None:
    global _drawn, _stays
    with _writing:
        erasing = _erasing()
        _drawn, _stays = lines, stays
        if lines or erasing:
            _write(erasing + "\n".join(line.written for line in lines))


def _erase() -> None:
    global _drawn
    erasing, _drawn = _erasing(), ()
    if erasing:
        _write(erasing)


def _erasing() -> str:
    """What removes the lines from the terminal, which may have become narrower and has wrapped them then."""
    if not _drawn:
        return ""
    wide = _columns()
    rows = sum(max(1, -(-line.columns // wide)) for line in _drawn)
    return _ERASE + _UP * (rows - 1)


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # the terminal has gone; the work continues
        pass


def is_dead_terminal(error: OSError) -> bool:
    """Whether text could not be written because the terminal was closed (tty_ioctl(4): a hung-up one gives EIO)."""
    return error.errno == errno.EIO and error.filename is None
