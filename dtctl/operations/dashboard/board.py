"""What a page shows, part by part, and who looks at it: one writer, any number of readers, and none waits for another.

There is no queue. A part that has changed has a number; a reader takes those with a higher number than the last that it
has seen, when it is ready for them. One that is slow goes without what was between.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

FAREWELL_S = 3.0
"""For readers to be told of the end."""


class Board:
    """`put`, `close` and `wait_for_readers` are for the thread that writes; the others for those of the readers."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[int, str]] = {}
        self._number = 0
        self.closed = False
        self.readers = 0
        self._changed = threading.Condition()

    def put(self, parts: Mapping[str, str]) -> None:
        """Those that are as before are not told again."""
        with self._changed:
            changed = {name: text for name, text in parts.items() if self._parts.get(name, (0, None))[1] != text}
            if changed:
                self._number += 1
                self._parts.update({name: (self._number, text) for name, text in changed.items()})
                self._changed.notify_all()

    def close(self) -> None:
        """Readers are told that nothing more will come; returns when they were, or do not read."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self.readers, FAREWELL_S)

    def wait_for_readers(self, timeout_s: float) -> bool:
        """True as soon as somebody looks."""
        with self._changed:
            return self._changed.wait_for(lambda: self.readers > 0, timeout_s)

    def since(self, number: int) -> tuple[int, dict[str, str]]:
        """The newest number, and the parts that are newer than that one. A number that never was is as good as 0."""
        with self._changed:
            known = number if 0 <= number <= self._number else 0
            return self._number, {name: text for name, (at, text) in self._parts.items() if at > known}

    def await_newer(self, number: int, timeout_s: float) -> None:
        """Returns when there is something newer, or nothing more will come, or it took too long."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > number or self.closed, timeout_s)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While somebody looks."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._changed:
            self.readers += more
            self._changed.notify_all()
