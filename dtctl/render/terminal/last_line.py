"""A line on stderr's terminal that stays below whatever else is written, on stdout too, and is drawn again and again.

rich's Live would have to take over both streams, and to parse what hosts print.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dtctl.render.terminal.safe import one_line

REDRAWN_S = 0.5
_ERASE = "\r\x1b[2K"

_writing = threading.RLock()
_drawn = False
"""There is one terminal, and so one such line."""


class LastLine:
    """A `Display` (see moving.py). `words` is asked for the line each time; an empty one is not drawn."""

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words
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
        line = one_line(self._words())
        with _writing:
            _erase()
            if line:
                _write(line)
                _drawn = True


@contextmanager
def above() -> Iterator[None]:
    """What is written meanwhile stands above the line, which comes back with its next turn."""
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
    except OSError:  # the terminal has gone: the work goes on all the same
        pass
