"""What the voters of a run claim, each about itself: its term, and the host that it backs in that term.

A voter backs a host for which it has voted or which it follows. Nobody follows a claim: a host coordinates if a
majority of the voters backs it in one term, each by its own word over a link whose certificate names it. A term counts
as seen if a majority claims it or a newer one, so a minority cannot raise it.

A majority contains an honest voter if the liars are a minority, and no more than that is certain: a liar may back one
host before one half of the voters and another host before the other half while the halves cannot talk to each other.
Quorums of a majority cannot exclude that.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Collection, Dict, List, Mapping, Optional, Tuple

    from ..records.whole_run import Ballot

    Claim = Tuple[int, Optional[str], bool]
    """The voter's term, the host that it backs in this term, and whether it knows that this host was elected."""

    Place = Tuple[int, str]
    """A term and its coordinator."""


def claim_in(message: Mapping[str, Any]) -> Claim:
    """The claim of the voter that sent it: every message of a voter but `lease` and `canvass` contains one."""
    return message["term"], message["backs"], message["elected"]


def stance_of(ballot: Ballot) -> Dict[str, Any]:
    """What the voter with this ballot claims of itself, as the fields of a message."""
    coordinator = ballot["coordinator"]
    return {"term": ballot["term"], "backs": coordinator or ballot["voted"], "elected": coordinator is not None}


class Claims:
    """The newest claim of each voter. A voter whose agent was replaced may claim less than before."""

    def __init__(self, voters: Collection[str], term: int) -> None:
        """`term`: of a voter that has claimed nothing yet."""
        self.majority = len(voters) // 2 + 1
        self._newest: Dict[str, Claim] = dict.fromkeys(voters, (term, None, False))

    def hear(self, voter: str, claim: Claim) -> None:
        if voter in self._newest:
            self._newest[voter] = claim

    def terms(self) -> List[int]:
        """Newest first."""
        return sorted((term for term, _, _ in self._newest.values()), reverse=True)

    def seen(self) -> int:
        """The newest term that a majority has reached."""
        return self.terms()[self.majority - 1]

    def seen_with(self, voter: str) -> int:
        """The newest term that a majority would have reached if this voter did, too."""
        others = sorted((term for other, (term, _, _) in self._newest.items() if other != voter), reverse=True)
        return others[self.majority - 2] if self.majority > 1 else self.seen()

    def elected(self) -> Optional[Place]:
        """The newest term in which a majority backs one host that one of them knows to be elected."""
        backed: Dict[Place, List[bool]] = {}
        for term, backs, elected in self._newest.values():
            if backs is not None:
                backed.setdefault((term, backs), []).append(elected)
        return max(
            (place for place, known in backed.items() if len(known) >= self.majority and any(known)), default=None
        )


class Patience:
    """How often a host may cause something: `free` times at once, and then after waits that double."""

    def __init__(self, first_s: float, last_s: float, free: int = 1) -> None:
        self._first_s, self._last_s, self._free = first_s, last_s, free
        self._times: Dict[str, int] = {}
        self._next: Dict[str, float] = {}

    def allows(self, host: str, now: float) -> bool:
        return now >= self._next.get(host, now)

    def use(self, host: str, now: float) -> bool:
        """Whether it is allowed; then it counts."""
        if not self.allows(host, now):
            return False
        times = self._times[host] = self._times.get(host, 0) + 1
        if times >= self._free:
            self._next[host] = now + min(self._first_s * 2.0 ** min(times - self._free, 30), self._last_s)
        return True

    def forget(self, host: str) -> None:
        """The host begins anew."""
        self._times.pop(host, None)
        self._next.pop(host, None)
