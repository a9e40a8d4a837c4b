"""Which hosts are in touch, and since when the others are away."""

from __future__ import annotations

from ..records.reasons import fact, sentence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Protocol, Set

    from ..records.reasons import Fact
    from .view import View

    class Tell(Protocol):
        def __call__(self, kind: str, why: List[Fact], *, host: str) -> None: ...


DIAL_AGAIN_S = 20.0
"""Agents dial at least as often."""


class Contacts:
    """Times are of the monotonic clock. At first nobody is in touch."""

    def __init__(self, view: View, tell: Tell) -> None:
        self.away: Dict[str, float] = {}
        """Host -> since when."""
        self._view = view
        self._tell = tell
        self._told: Set[str] = set()
        for host in view.hosts.values():
            host["connected"] = False

    def expect(self, now: float) -> None:
        """Expects the hosts that were in touch with an earlier coordinator to come to this one."""
        own = self._view.own_host
        known = [host for host, known in self._view.hosts.items() if known["state"] is not None and not known["over"]]
        self.away.update((host, now) for host in known if host != own)

    def miss(self, now: float) -> None:
        """Tells of those who ought to have come by now."""
        for host, since in self.away.items():
            if host not in self._told and now - since > DIAL_AGAIN_S:
                self._tell_away(host, fact("not_back", host=host))

    def greet(self, host: str, now: float) -> None:
        since = self.away.pop(host, now)
        if host in self._told:
            self._told.remove(host)
            self._tell("contact", [fact("back", host=host, seconds=now - since)], host=host)
        self.note_answer(host, answers=False)
        if self._view.hosts[host]["absent"]:
            self._tell("contact", [fact("joined", host=host)], host=host)
        self._view.hosts[host].update({"connected": True, "over": False, "absent": False})

    def lose(self, host: str, since: float, reason: str, is_done: bool) -> None:
        """`is_done`: nothing more is expected of it."""
        known = self._view.hosts[host]
        if known["connected"]:
            known.update({"connected": False, "over": is_done})
            if not is_done:
                self.away[host] = since
                self._tell_away(host, fact("away", host=host, text=reason))

    def note_answer(self, host: str, *, answers: bool) -> None:
        """Whether the machine of a host that is away answers: then its agent is gone, or cut off."""
        why, data = fact("agent_gone", host=host), self._view.data
        text = sentence([why])
        if answers != (text in data["warnings"]):
            data["warnings"] = [*(other for other in data["warnings"] if other != text), *([text] if answers else [])]
            if answers:
                self._tell("contact", [why], host=host)

    def leave(self, host: str) -> None:
        """One that had joined has no part in the run again, as if it had never been heard."""
        self.away.pop(host, None)
        self._told.discard(host)
        self._view.hosts[host].update({"connected": False, "heard": None, "state": None, "absent": True})
        self._tell("contact", [fact("join_undone", host=host)], host=host)

    def _tell_away(self, host: str, why: Fact) -> None:
        self._told.add(host)
        self._tell("contact", [why], host=host)
