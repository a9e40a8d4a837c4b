"""How long a host is waited for, above all while it says nothing or takes nothing.

All limits of a conversation stand here, so that those who try hosts that hang can shorten them in one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dtctl.errors import TransportError

SILENCE_LIMIT_S = 30.0
"""Agents that have nothing to say send a beat every five seconds."""

GREETING_TIMEOUT_S = 60.0
"""For a host that is too busy to start Python; a host that is down fails long before."""

PATIENCE_S = 120.0
"""For an answer that needs only a look; beats do not extend it."""

TOLD_AFTER_S = 10.0
ALIVE_BYTES = 64 * 1024
"""How much of a long frame counts as a sign of life: a slow line gets time, a byte now and then does not."""

Waiting = Callable[[str, float, float], None]
"""Called once in each silence: a host's name, how long it has been silent, and the limit."""


def unobserved(host: str, silent_s: float, limit_s: float) -> None:
    """Reports nothing."""


class SilenceTimer:
    """One wait for one host."""

    def __init__(self, host: str, limit_s: float, waiting: Waiting) -> None:
        self._host = host
        self._limit_s = limit_s
        self._waiting = waiting
        self._bytes = 0
        self.broken()

    def broken(self) -> None:
        """It has sent something, or has taken something."""
        self._since = time.monotonic()
        self._reported = False

    def received(self, size: int, *, whole_frames: bool) -> None:
        """So many bytes have come; those of a frame that is not whole yet count when they are many."""
        self._bytes = 0 if whole_frames else self._bytes + size
        if whole_frames or self._bytes >= ALIVE_BYTES:
            self._bytes = 0
            self.broken()

    @property
    def wait_s(self) -> float:
        """How long to wait before `check` is called."""
        until = self._limit_s if self._reported or self._limit_s <= TOLD_AFTER_S else TOLD_AFTER_S
        return max(0.0, self._since + until - time.monotonic())

    def check(self) -> None:
        """Reports a long silence. Raises TransportError when it is too long."""
        silent_s = time.monotonic() - self._since
        if silent_s >= self._limit_s:
            raise TransportError(
                f"{self._host} has been silent for {self._limit_s:g} s",
                detail="the connection is up, but the agent there neither sends nor reads",
                hint="is the host overloaded, or does its disk hang? the other hosts' answers are not affected",
            )
        if silent_s >= TOLD_AFTER_S and not self._reported:
            self._reported = True
            self._waiting(self._host, TOLD_AFTER_S, self._limit_s)
