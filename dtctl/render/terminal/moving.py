"""What is drawn again and again stands still while a person is asked something, or it would erase the question."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar


class Display(Protocol):
    """What rich's Live and Progress are: both may be called again and again, and from any thread."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


D = TypeVar("D", bound=Display)


class Redrawn(Generic[D]):
    """A display of several lines, made anew each time it is shown.

    A Live of rich that is started again goes up by as many lines as it had, and erases what stands there: the question.
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
