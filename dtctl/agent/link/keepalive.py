"""When a connection is to be kept alive, when it is given up, and when it is tried again: pure functions of a clock."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

BEAT_S = 3.0
SLACK_S = 0.5
"""Beats may go out this much earlier, so that those for many connections go together."""

SILENCE_S = 10.0
RETRY_FIRST_S = 0.125
RETRY_SOON_S = 3.0
"""The longest delay in the first minute: a coordinator that is started again, or has its port again, is found soon."""

SOON_FOR_S = 60.0
RETRY_LAST_S = 15.0


class Keepalive:
    """State of one connection. `now` is the monotonic clock, here and everywhere in the link."""

    def __init__(self, now: float) -> None:
        self._said = self.last_heard = now

    def said(self, now: float) -> None:
        self._said = now

    def heard(self, now: float) -> None:
        self.last_heard = now

    def due(self) -> float:
        """When `wants_beat` or `is_lost` has to be asked again."""
        return min(self._said + BEAT_S, self.last_heard + SILENCE_S)

    def wants_beat(self, now: float) -> bool:
        return now - self._said >= BEAT_S - SLACK_S

    def is_lost(self, now: float) -> bool:
        return now - self.last_heard >= SILENCE_S


class Retry:
    """The delays between attempts, each drawn between half and all of a limit that doubles: no two agents keep step."""

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._limit_s = RETRY_FIRST_S
        self._failing_since: Optional[float] = None

    def next_s(self, now: float) -> float:
        if self._failing_since is None:
            self._failing_since = now
        last_s = RETRY_SOON_S if now - self._failing_since < SOON_FOR_S else RETRY_LAST_S
        limit_s = min(self._limit_s, last_s)
        self._limit_s = limit_s * 2
        return limit_s * (1 + self._random()) / 2

    def reset(self) -> None:
        self._limit_s = RETRY_FIRST_S
        self._failing_since = None
