"""How much one look at files of others may cost."""

from __future__ import annotations

import time


class Spent(Exception):
    """The text says what there was too much of."""


class Budget:
    """Of time (`until`, on the monotonic clock) and of names in directories."""

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
