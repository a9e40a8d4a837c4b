"""What is drawn again and again stands still while a person is asked something, or it would erase the question."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Display(Protocol):
    """What rich's Live and Progress are: both may be called again and again, and from any thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


_lock = threading.RLock()
_shown: list[Display] = []
_questions = 0


@contextmanager
def moving(display: Display) -> Iterator[None]:
    """Shows the display while this lasts, except while something is asked."""
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
    """Nothing moves while this lasts. No lock is held meanwhile: whoever is asked may take long, or press Ctrl-C."""
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
