"""Orders the lead's host to set damaged checkpoints aside before the lead restarts.

That host is the one that restores them: it sees them wherever the run is coordinated, also after an election, and
whether hosts share the directory or not.
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.run_state import Repaired

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from ..records.values import Repair
    from .view import View

ANSWER_S = 20.0
"""How long the lead's host may take: file systems may be slow, and an agent of an older build does not answer."""


class Repairs:
    """Times are of the monotonic clock."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._since: Optional[float] = None

    def update(self, now: float, how: Repair) -> Optional[Repaired]:
        """The report about the time since the lead's last attempt; None while it is awaited.

        The first call gives the order. Call it only while nothing is left of the lead's last attempt.
        """
        view, lead = self._view, self._view.lead
        attempt, repaired = view.entry(lead)["attempt"], view.entry(lead)["repaired"]
        if view.intents[lead]["want"] != "hold":
            return self._end(made(Repaired, attempt=attempt, how=how))  # it may run already
        if repaired is not None and repaired["attempt"] == attempt and repaired["how"] in (how, "full"):
            return self._end(repaired)
        if view.intents[lead]["repair"] != how:
            view.wanted([lead], repair=how)
        self._since = now if self._since is None else self._since
        if now - self._since < ANSWER_S:
            return None
        silent = "checkpoints were not inspected: %s does not answer" % view.roster[lead]["host"]
        return self._end(made(Repaired, attempt=attempt, how=how, done=[silent]))

    def _end(self, repaired: Repaired) -> Repaired:
        self._since = None
        if self._view.intents[self._view.lead]["repair"] is not None:
            self._view.wanted([self._view.lead], repair=None)
        return repaired
