"""How long to wait for a host, above all while it sends or reads nothing.

All limits of a conversation are here, so that tests with hanging hosts can shorten them in one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from dtctl.errors import TransportError

SILENCE_LIMIT_S = 30.0
"""The longest silence of a host; idle agents send a beat every five seconds."""

GREETING_TIMEOUT_S = 60.0
"""The time for a greeting. A host may be too busy to start Python soon; a host that is down fails much earlier."""

PATIENCE_S = 120.0
"""The time for an answer without lengthy work; beats do not extend it."""

TOLD_AFTER_S = 10.0
ALIVE_BYTES = 64 * 1024
"""How much of a long frame counts as a sign of life: a slow line gets time, single bytes do not."""

Waiting = Callable[[str, float, float], None]
"""Called once in each silence: a host's name, how long it has been silent, and the limit."""


def unobserved(host: str, silent_s: float, limit_s: float) -> None:
    """Reports nothing."""


class SilenceTimer:
    """The silence during one wait for one host."""

    def __init__(self, host: str, limit_s: float, waiting: Waiting) -> None:
        self._host = host
        self._limit_s = limit_s
        self._waiting = waiting
        self._bytes = 0
        self.broken()

    def broken(self) -> None:
        """Restarts the timer: the host has sent or read something."""
        self._since = time.monotonic()
        self._reported = False

    def received(self, size: int, *, whole_frames: bool) -> None:
        """Counts received bytes; those of an unfinished frame restart the timer only if they are many."""
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
