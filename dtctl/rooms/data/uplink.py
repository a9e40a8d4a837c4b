"""Measures how fast this machine sends to the hosts of a push."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BUFFERED_BYTES = 8 << 20
"""The first bytes of each transfer, which are not measured: they may still be in buffers of this machine."""
WINDOW_S = 5.0


class Uplink:
    """The rate of this machine's uplink. Safe for many threads. `share_bytes_per_s`: what one more host would get from
    here; None while that is not known.

    It follows from the best rate over WINDOW_S, or of one transfer, so far, which no host that reads slowly can lower.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._changing = threading.Lock()
        self._sending: dict[int, int] = {}
        """Transfer -> its bytes so far."""
        self._next = 0
        self._begun = 0.0
        self._window_bytes = 0
        self._best = 0.0

    @contextmanager
    def sending(self) -> Iterator[Callable[[int], None]]:
        """One transfer; the function gets how many bytes of it have been sent."""
        with self._changing:
            key = self._next = self._next + 1
            if not self._sending:
                self._restart()
            self._sending[key] = 0
        began = self._now()
        try:
            yield lambda size: self._sent(key, size)
        finally:
            with self._changing:
                measured = self._sending.pop(key) - BUFFERED_BYTES
                passed_s = self._now() - began
                if measured > 0 and passed_s > 0:
                    self._best = max(self._best, measured / passed_s)

    @property
    def share_bytes_per_s(self) -> float | None:
        with self._changing:
            return self._best / (len(self._sending) + 1) if self._best else None

    def _sent(self, key: int, size: int) -> None:
        with self._changing:
            before = max(self._sending[key], BUFFERED_BYTES)
            self._sending[key] = size
            self._window_bytes += max(0, size - before)
            passed_s = self._now() - self._begun
            if passed_s >= WINDOW_S:
                self._best = max(self._best, self._window_bytes / passed_s)
                self._restart()

    def _restart(self) -> None:
        self._begun, self._window_bytes = self._now(), 0
