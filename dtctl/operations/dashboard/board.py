"""What a page shows, part by part, and who looks at it: one writer, any number of readers, and none waits for another.

There is no queue. A part that has changed has a number; a reader takes those with a higher number than the last that it
has seen, when it is ready for them. One that is slow goes without what was between.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress


class Board:
    """`put`, `close` and `wait_for_readers` are for the thread that writes; the others for the loop that serves."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[int, str]] = {}
        self._number = 0
        self._closed = False
        self._readers = 0
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def readers(self) -> int:
        return self._readers

    def put(self, parts: Mapping[str, str]) -> None:
        """Those that are as before are not told again."""
        with self._lock:
            changed = {name: text for name, text in parts.items() if self._parts.get(name, (0, None))[1] != text}
            if not changed:
                return
            self._number += 1
            self._parts.update({name: (self._number, text) for name, text in changed.items()})
        self._wake()

    def close(self) -> None:
        """Readers are told that nothing more will come."""
        self._closed = True
        self._wake()

    def wait_for_readers(self, timeout_s: float) -> bool:
        """True as soon as somebody looks."""
        return self._wanted.wait(timeout_s)

    def since(self, number: int) -> tuple[int, dict[str, str]]:
        """The newest number, and the parts that are newer than that one. A number that never was is as good as 0."""
        with self._lock:
            known = number if 0 <= number <= self._number else 0
            return self._number, {name: text for name, (at, text) in self._parts.items() if at > known}

    async def newer(self, number: int, timeout_s: float) -> None:
        """Returns when there is something newer, or nothing more will come, or it took too long."""
        changed = asyncio.Event()
        self._waiting[changed] = asyncio.get_running_loop()
        try:
            if self._number <= number and not self._closed:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), timeout_s)
        finally:
            del self._waiting[changed]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While somebody looks."""
        self._readers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._wanted.clear()

    def _wake(self) -> None:
        for changed, loop in list(self._waiting.items()):
            with suppress(RuntimeError):  # a loop that has ended meanwhile
                loop.call_soon_threadsafe(changed.set)
