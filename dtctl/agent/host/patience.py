"""Work on file systems that may never answer: it is done in a thread of its own, and awaited for a limited time."""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Set, Tuple, TypeVar

    T = TypeVar("T")


class Silent(Exception):
    """No answer has come in time."""


_unanswered: Set[str] = set()
"""Places where a thread is at work. One that hangs is not given company."""


def within(limit_s: float, place: str, work: Callable[[], T]) -> T:
    """What `work` returns or raises. Raises Silent after the limit, and at once while earlier work there goes on."""
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
    except RuntimeError:  # no thread is to be had just now
        _unanswered.discard(place)
        raise Silent from None
    if not answered.acquire(timeout=limit_s):
        raise Silent
    value, error = answers[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]
