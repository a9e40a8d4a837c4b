"""How much one host may write into what belongs to all: pure arithmetic of a clock."""

from __future__ import annotations

BURST_BYTES = 4 << 20
"""Some 20,000 transitions, as of a host with many tasks that was away for a day."""

REFILL_BYTES_S = 512.0
"""Two or three transitions a second, for ever: more than any back-off allows a task that fails on and on."""

TELL_S = 60.0
"""How often the number of lines beyond the quota is told."""


class Quota:
    """`now` is the monotonic clock."""

    def __init__(self, now: float) -> None:
        self._room: float = BURST_BYTES
        self._filled = now
        self._excess = 0
        self._tell_at = now

    def takes(self, size: int, now: float) -> bool:
        """Whether so many bytes more are let in; if not, they are counted as one."""
        self._room = min(BURST_BYTES, self._room + (now - self._filled) * REFILL_BYTES_S)
        self._filled = now
        if size > self._room:
            self._excess += 1
            return False
        self._room -= size
        return True

    def left_out(self, now: float) -> int:
        """How many were not let in since this was told last; 0 also while it is too early to tell again."""
        if not self._excess or now < self._tell_at:
            return 0
        told, self._excess = self._excess, 0
        self._tell_at = now + TELL_S
        return told
