"""Limits one inspection of others' files, in file systems that may never answer."""

from __future__ import annotations

import _thread
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Set, Tuple, TypeVar

    T = TypeVar("T")


class Spent(Exception):
    """The budget is spent; the text names the exceeded limit."""


class Budget:
    """A budget of time (`until`, on the monotonic clock) and of names in directories."""

    _NAMES_AT_ONCE = 1024

    def __init__(self, until: float, names: int) -> None:
        self.until = until
        self._most_names = self._names = names

    def check(self) -> None:
        """Raises Spent when the time is over."""
        if time.monotonic() > self.until:
            raise Spent("it took too long")

    def name(self) -> None:
        """Another name in a directory. Raises Spent."""
        self._names -= 1
        if self._names < 0:
            raise Spent("there are more than %d names" % self._most_names)
        if not self._names % self._NAMES_AT_ONCE:
            self.check()


class Silent(Exception):
    """There was no answer in time."""


_unanswered: Set[str] = set()
"""Places where a thread is at work. One that hangs is not given company."""


def within(limit_s: float, place: str, work: Callable[[], T]) -> T:
    """Runs `work` with a limit; returns or raises its result.

    Raises Silent after the limit, and at once while earlier work there continues.
    """
    if place in _unanswered:
        raise Silent
    answers: List[Tuple[Optional[T], Optional[BaseException]]] = []
    answered = _thread.allocate_lock()
    answered.acquire()

    def do() -> None:
        try:
            answers.append((work(), None))
        except BaseException as error:  # raised in the thread that waits; of no use once it has given up
            answers.append((None, error))
        finally:
            _unanswered.discard(place)
            answered.release()

    _unanswered.add(place)
    try:
        _thread.start_new_thread(do, ())
    except RuntimeError:  # no thread can be started just now
        _unanswered.discard(place)
        raise Silent from None
    if not answered.acquire(timeout=limit_s):
        raise Silent
    value, error = answers[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
