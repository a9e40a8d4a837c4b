"""Displays that are drawn repeatedly. They pause during a prompt, which they would otherwise erase."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

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

_writing = threading.RLock()
_drawn = False
"""Whether the line is on the terminal; there is only one terminal, and so one such line."""


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
        global _drawn
        line = one_line(self._text())
        with _writing:
            _erase()
            if line:
                _write(line)
                _drawn = True


@contextmanager
def above() -> Iterator[None]:
    """Output in this context is above the line, which appears again when it is next drawn."""
    with _writing:
        _erase()
        yield


def _erase() -> None:
    global _drawn
    if _drawn:
        _drawn = False
        _write(_ERASE)


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # the terminal has gone; the work continues
        pass


def is_dead_terminal(error: OSError) -> bool:
    """Whether text could not be written because the terminal was closed (tty_ioctl(4): a hung-up one gives EIO)."""
    return error.errno == errno.EIO and error.filename is None
