"""Which lines are asked for."""

from __future__ import annotations

from .finding import finder
from .sieve import Sieve
from .troubles import Troubles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Optional

    from ..host.secrets import Masks
    from ..records.requests import LogsRequest


class Selection:
    """Of all tasks of one request. `check` raises when nobody waits for an answer any more."""

    def __init__(self, request: LogsRequest, masks: Masks, check: Callable[[], None]) -> None:
        self.lines = request["lines"]
        self.since = request["since"]
        self.until = request["until"]
        self.context = request["context"]
        self.errors = request["errors"]
        self.masks = masks
        self.check = check
        grep = request["grep"]
        self.finder = None if grep is None else finder(grep, masks)

    @property
    def all_lines(self) -> bool:
        """Of the time that is meant."""
        return self.finder is None and not self.errors

    @property
    def remembers(self) -> bool:
        """Whether a line is meant depends on the lines before it."""
        return self.errors or self.context > 0

    def sieve(self) -> Optional[Sieve]:
        """For one attempt's log; None: all its lines."""
        if self.errors:
            return Sieve(Troubles(self.masks), self.context, last_words=True)
        return None if self.finder is None else Sieve(self.finder, self.context)

    def close(self) -> None:
        if self.finder is not None:
            self.finder.close()
