"""Whether the run is still this coordinator's: what others may have taken over is not started again.

After `dtctl replace` another host leads the cluster's next run, and the hosts that were asked hold to the end of this
one. A coordinator that was away meanwhile hears so from the first of them. So one whose machine was restarted starts
nothing before it is in touch with most of the run's hosts, and then gives the others the time in which agents dial. One
that has lost most of the others goes on alone only where nobody that is waited for is among them.
"""

from __future__ import annotations

from .contacts import DIAL_AGAIN_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .view import View


class Quorum:
    """`may_start`: as it is now."""

    def __init__(self, view: View) -> None:
        self.may_start = True
        self._view = view
        self._vouched = True
        """Somebody at a controller has just asked for this run."""
        self._is_new_here = False
        """Nobody has been asked since the machine was restarted."""
        self._doubts = False
        self._had = False
        self._since: Optional[float] = None

    def resume(self, *, rebooted: bool) -> None:
        self._vouched = False
        self._is_new_here = self._doubts = rebooted
        self.may_start = False

    def vouch(self) -> None:
        """A person asks for something to be started."""
        self._vouched = True

    def look(self, now: float) -> None:
        """`now` is the monotonic clock."""
        present = [known for host, known in self._view.hosts.items() if not known["absent"] or host == self._own]
        missing = sum(not known["connected"] for known in present) - (not self._view.hosts[self._own]["connected"])
        if 2 * missing < len(present):
            self._since = now if self._since is None else self._since
            if not (self._doubts and missing and now - self._since < DIAL_AGAIN_S):
                self._had, self._doubts, self._is_new_here = True, False, False
            self.may_start = self._vouched or not self._doubts
            return
        self._since = None
        if self._had:
            self._had, self._doubts, self._vouched = False, True, False
        self.may_start = self._vouched or (not self._is_new_here and self._is_complete())

    @property
    def _own(self) -> str:
        return self._view.own_host

    def _is_complete(self) -> bool:
        """Nobody that others wait for is out of touch."""
        view = self._view
        return all(view.reached(task) or view.final(task) for task in view.present if view.waited_for(task))

    def missing(self) -> int:
        """How many hosts more have to be in touch."""
        present = [known for known in self._view.hosts.values() if not known["absent"]]
        return max(0, len(present) // 2 + 1 - sum(known["connected"] for known in present))
