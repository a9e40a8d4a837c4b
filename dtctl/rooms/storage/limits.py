"""A time limit for calls into a library that may have none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from dtctl.rooms.storage.errors import StorageError

T = TypeVar("T")


def within(limit_s: float, url: str, work: Callable[[], T]) -> T:
    """What `work` returns or raises; StorageError after the time limit. The call is then abandoned."""
    found: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if raised:
        raise raised[0]
    if not found:
        raise StorageError(f"{url} did not answer within {limit_s:g} s")
    return found[0]
