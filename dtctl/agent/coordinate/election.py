"""Which voter coordinates a run: elected by the majority for a term, it decides while a majority has granted its lease.

The elections and leases of Raft, without its log: hosts hold the truth, and what a coordinator knows beyond them is one
small record, the memo, of which the newest version counts. No decision that starts anything leaves the coordinator
before a majority holds the memo that it follows from, and no voter votes for a candidate whose memo is older than its
own: so the one that is elected knows what was decided.

    follower    -> candidate    it has granted no lease for PROMISE_S and a little more
    candidate   -> coordinator  a majority would vote for it (a trial, which changes nothing), and then has
    coordinator -> candidate    its lease has expired: until it has won again, it decides nothing that starts a task;
                                or a voter claims a newer term, and would follow no coordinator of this one
    any         -> follower     a majority confirms another coordinator, or this voter votes for another one

A voter may lie, or be compromised: what it claims moves nobody (claims.py). A voter follows whom a majority backs, and
queries the others when a host claims to coordinate. An election is held at most `FEW_TERMS` above the newest term that
a majority has reached, so no claim raises the term far. Only a voter that has had no coordinator for `STUCK_S` counts
itself as one of a majority with those ahead of it: of three voters, the other honest one may be that far ahead. What a
claim may cause is rarer each time: another election, a query, a vote. For what a minority of liars can do all the same,
see claims.py.

It neither reads a clock nor a file nor a socket. `take` gives what is to be sent; the caller first writes `ballot` if
it has changed, and waits until it is on the disk, as before it sets `memo` or calls `publish`. A disk that loses what
it was said to hold is not survived: its voter may vote twice in a term, or for a candidate without what was decided.
"""

from __future__ import annotations

from ..records.kinds import made
from ..records.whole_run import Ballot
from .claims import Claims, Patience, claim_in, stance_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

    from .claims import Claim

    Message = Mapping[str, Any]
    Version = Tuple[int, int]


LEASE_S = 8.0
"""How long a lease lasts by the coordinator's clock, from its request on."""

PROMISE_S = 10.0
"""How long a voter votes for no other after it granted a lease, by its own clock. Clocks may differ by a quarter."""

LEASE_EVERY_S = 2.0
ASKS_S = 10.0
SILENT_S = 20.0
"""How long a coordinator without a lease asks for it, and then does not, while others may be elected."""

SPREAD_S = 3.0
"""Voters become candidates at times so far apart, or the votes would be split."""

TRIAL_S = 3.0
"""How long a candidate waits for votes."""

VOTE_EVERY_S = 2.0
"""How long a candidate that this voter has voted for has to be elected, before it votes for another one."""

LASTING_S = 30.0
"""After this time with one coordinator, votes in vain are forgotten."""

FEW_TERMS = 2
"""An election is held at most so many terms above the newest one that a majority has reached."""

STUCK_S = 18.0
"""How long a voter has no coordinator before it counts for that majority itself."""

MOST_AHEAD = 1_000_000
"""The largest step by which it then raises its term."""

DOUBT_S = 5.0
"""How long a claim is open before it is reported."""


class Election:
    """The election as one voter sees it.

    `ballot`: as on the disk. `memo`: version (term, serial) of the memo that this voter holds.

    `begins`: the run begins, and its first coordinator is the one that the ballot names. `random`: from 0 to 1. Times
    are of a clock that only goes forward, and counts the time in which the machine sleeps, where there is one.
    """

    def __init__(
        self,
        own: str,
        voters: Sequence[str],
        ballot: Ballot,
        memo: Version,
        now: float,
        random: Callable[[], float],
        *,
        begins: bool = False,
    ) -> None:
        self.own = own
        self.ballot = ballot
        self.memo = memo
        self._others = [voter for voter in voters if voter != own]
        self._majority = len(voters) // 2 + 1
        self._claims = Claims(voters, ballot["term"])
        self._random = random
        self._outbox: List[Tuple[str, Message]] = []
        self._promised_until = now + PROMISE_S  # promises made before a restart are forgotten
        self._stand_at = self._promised_until + SPREAD_S * random()
        self._granted: Optional[Set[str]] = None
        """The voters that have voted for this one; None while it is no candidate."""
        self._is_trial = False
        self._leads = False
        self._beat = 0
        self._lease_at = now
        self._had_lease_at = now
        """When it last had its lease, or was elected."""
        self._asked: Dict[int, float] = {}
        """When the leases that may still be granted were asked for."""
        self._leases: Dict[str, float] = {}
        self._held: Dict[str, Version] = {}
        """The memo that each of the others holds."""
        self._candidacy = 0
        self._stuck_at = now + STUCK_S
        self._vote_at = now
        """When it may vote for another candidate."""
        self._repeat_until = now
        """How long a coordinator with a lease waits for votes in a newer term."""
        self._runs = 0
        """How often it has tried to be elected since it had a coordinator."""
        self._since = now
        """Since when it has had this coordinator."""
        self._queries = Patience(1.0, 30.0)
        self._repeats = Patience(10.0, 600.0)
        self._vain_votes = Patience(10.0, 600.0, free=2)
        self._doubted: Dict[Tuple[str, str], Tuple[int, float]] = {}
        """Claims that no majority confirms: host and kind -> the first term, and since when."""
        if ballot["coordinator"] == own:
            self._promised_until = self._stand_at = now
            if begins:
                self._lead(now)

    @property
    def coordinator(self) -> Optional[str]:
        """The coordinator of the newest term that this voter knows."""
        return self.ballot["coordinator"]

    @property
    def leads(self) -> bool:
        """This voter was elected last, as far as it knows. Whether it may decide, `has_lease` says."""
        return self._leads

    @property
    def is_candidate(self) -> bool:
        """This voter asks for votes that still count."""
        return self._granted is not None

    def has_lease(self, now: float) -> bool:
        """Whether this voter leads and no other can have been elected."""
        return self._leads and now < self._lease_until()

    def follows(self, host: str, term: int) -> bool:
        """Whether this voter knows, by a majority, that the host coordinates in this term."""
        return host != self.own and (term, host) == (self.ballot["term"], self.ballot["coordinator"])

    @property
    def committed(self) -> Version:
        """The newest memo of this term that a majority holds; an older term's may be superseded by one between them."""
        held = sorted([self.memo, *self._held.values(), *[(0, 0)] * len(self._others)], reverse=True)
        version = held[self._majority - 1]
        return version if version[0] == self.ballot["term"] else (0, 0)

    def due(self) -> float:
        return min(self._lease_at, self._stand_at) if self._leads else self._stand_at

    def take(self) -> List[Tuple[str, Message]]:
        """Returns and clears the messages to send, each with its receiver."""
        messages, self._outbox = self._outbox, []
        return messages

    def wants_news(self, voter: str) -> bool:
        """Whether the voter lacks the newest memo, as far as is known."""
        return self._held.get(voter) != self.memo

    def publish(self, serial: int, now: float) -> None:
        """This coordinator has written a new memo to its disk: the others are sent it with the next lease, now."""
        assert self._leads, "the memo of a term is its coordinator's"
        self.memo = (self.ballot["term"], serial)
        self.ask_now(now)

    def ask_now(self, now: float) -> None:
        """The next leases are asked for at once."""
        self._lease_at = now

    def defer(self, until: float) -> None:
        """Others are to be elected before this voter, if they can be."""
        if not self._leads:
            self._stand_at = max(self._stand_at, until)

    def step(self, now: float) -> None:
        if self.has_lease(now):
            self._stand_at = max(self._stand_at, self._lease_until())
            self._settle(now)
            self._had_lease_at = now
        elif now >= self._stand_at:
            self._stand(now)
        if self._leads and now >= self._lease_at:
            self._ask_for_leases(now)

    def receive(self, host: str, message: Message, now: float) -> None:
        """`lease`, `granted`, `canvass`, `vote` or `stance`.

        `now` is read after it: a pause between would shorten a promise. A lease comes after `hear_of_coordinator`.
        """
        if host not in self._others:
            return
        if message["type"] == "lease":
            self._grant(host, message, now)
        elif message["type"] == "granted":
            self._take_lease(host, message, now)
        elif message["type"] == "canvass":
            self._vote(host, message, now)
        elif message["type"] == "vote":
            self._count(host, message, now)
        elif message["type"] == "stance":
            self.hear(host, claim_in(message), now)

    def hear(self, host: str, claim: Claim, now: float) -> None:
        """A voter claims this of itself. Whom a majority backs, this voter follows."""
        self._claims.hear(host, claim)
        self._claims.hear(self.own, claim_in(stance_of(self.ballot)))
        self._doubt(host, "term", claim[0], now, doubts=claim[0] > self._claims.seen() + FEW_TERMS)
        elected = self._claims.elected()
        if elected is not None and elected[1] != self.own and elected[0] >= self.ballot["term"]:
            self._follow(*elected, now)

    def hear_of_coordinator(self, host: str, term: int, now: float) -> None:
        """The host claims to coordinate: unless that is known, the others are queried."""
        self.hear(host, (term, host, True), now)
        is_open = term >= self.ballot["term"] and not self.follows(host, term)
        self._doubt(host, "coordinator", term, now, doubts=is_open)
        if is_open and self._queries.use(host, now):
            self._outbox += [(other, {"type": "query"}) for other in self._others if other != host]

    def unconfirmed(self, now: float) -> Dict[Tuple[str, str], int]:
        """What others have claimed for a while and no majority confirms: host and kind -> term.

        The kinds are `term`, `coordinator` and `candidate`.
        """
        return {what: term for what, (term, since) in self._doubted.items() if now - since > DOUBT_S}

    def _doubt(self, host: str, what: str, term: int, now: float, *, doubts: bool) -> None:
        if not doubts:
            self._doubted.pop((host, what), None)
        else:
            self._doubted.setdefault((host, what), (term, now))

    def _follow(self, term: int, coordinator: str, now: float) -> None:
        if (term, coordinator) == (self.ballot["term"], self.ballot["coordinator"]):
            return
        voted = self.ballot["voted"] if term == self.ballot["term"] else None
        self.ballot = made(Ballot, term=term, voted=voted, coordinator=coordinator)
        self._leads = False
        self._since = now
        self._queries.forget(coordinator)
        self._expect_leases(now)

    def _settle(self, now: float) -> None:
        """Records that there is a coordinator."""
        self._stuck_at = now + STUCK_S
        self._runs = 0
        if now - self._since >= LASTING_S:
            for voter in self._others:
                self._vain_votes.forget(voter)

    def _expect_leases(self, now: float) -> None:
        self._granted = None
        self._stand_at = now + PROMISE_S + SPREAD_S * self._random()

    def _grant(self, host: str, lease: Message, now: float) -> None:
        """An older term's coordinator learns of the newer one from the answer.

        A voter that has not voted in the lease's term votes for its coordinator, which may lack its vote.
        """
        if lease["term"] > self.ballot["term"] and self._may_vote(host, lease, now):
            self._vote_for(host, lease["term"], now)
            self.hear(host, (lease["term"], host, True), now)
        if self.follows(host, lease["term"]):
            self._promised_until = now + PROMISE_S
            self._settle(now)
            self._expect_leases(now)
        answer = {"type": "granted", **stance_of(self.ballot), "beat": lease["beat"], "memo": list(self.memo)}
        self._outbox.append((host, answer))

    def _take_lease(self, host: str, granted: Message, now: float) -> None:
        self.hear(host, claim_in(granted), now)
        if self._is_out(host, granted) and self.has_lease(now) and self._repeats.use(host, now):
            self._repeat_until = now + TRIAL_S  # or that voter, which has wanted to be elected, would never follow
            self._canvass(max(self._next_term(now), granted["term"]), now, trial=True)
        if not self._leads or claim_in(granted) != (self.ballot["term"], self.own, True):
            return
        term, serial = granted["memo"]
        self._held[host] = (term, serial)
        asked = self._asked.get(granted["beat"])
        if asked is not None:
            self._leases[host] = max(asked, self._leases.get(host, asked))
        if self.has_lease(now) and now >= self._repeat_until:
            self._granted = None

    def _is_out(self, host: str, granted: Message) -> bool:
        """Whether the voter cannot follow this coordinator: by a newer term, or by another coordinator of this one."""
        if granted["term"] == self.ballot["term"]:
            return bool(granted["elected"] and granted["backs"] != self.own)
        term: int = granted["term"]
        return self.ballot["term"] < term <= self._claims.seen() + FEW_TERMS

    def _vote(self, host: str, canvass: Message, now: float) -> None:
        term = canvass["term"]
        granted = self._may_vote(host, canvass, now)
        if granted and not canvass["trial"]:
            self._vote_for(host, term, now)
        answer = {
            "type": "vote",
            **stance_of(self.ballot),
            "asked": term,
            "trial": canvass["trial"],
            "granted": granted,
        }
        self._outbox.append((host, answer))

    def _may_vote(self, host: str, asked: Message, now: float) -> bool:
        """`asked`: a canvass, or the lease of a coordinator for which this voter has not voted."""
        term, memo = asked["term"], tuple(asked["memo"])
        is_bound = now < self._promised_until and self.ballot["coordinator"] not in (None, host)
        is_free = term > self.ballot["term"] or (term == self.ballot["term"] and self.ballot["voted"] == host)
        is_near = term <= self._farthest(now)
        self._doubt(host, "candidate", term, now, doubts=not is_near)
        if not is_free or not is_near or is_bound or self.has_lease(now) or memo < self.memo:
            return False
        if term == self.ballot["term"] or (host == self.ballot["coordinator"] and now < self._promised_until):
            return True
        return now >= self._vote_at and self._vain_votes.allows(host, now)

    def _vote_for(self, host: str, term: int, now: float) -> None:
        self._leads, self._granted = False, None
        if term > self.ballot["term"]:
            self.ballot = made(Ballot, term=term, voted=host, coordinator=None)
            self._vain_votes.use(host, now)
        self._vote_at = now + VOTE_EVERY_S
        self._stand_at = now + TRIAL_S + SPREAD_S * self._random()

    def _stand(self, now: float) -> None:
        """A coordinator without a lease tries as often as it asks for leases."""
        self._stand_at = now + (LEASE_EVERY_S if self._leads else TRIAL_S + SPREAD_S * self._random())
        self._canvass(self._next_term(now), now, trial=True)

    def _next_term(self, now: float) -> int:
        """Above every claim that counts, because a voter of a newer term would refuse; or again its own term."""
        own, farthest = self.ballot["term"], self._claims.seen() + FEW_TERMS
        if self._random() < 0.5:  # not always: a lying voter's claims may have no end
            farthest = self._farthest(now)
        term = 1 + max([own, *(term for term in self._claims.terms() if term < farthest)])
        has_failed = self.ballot["voted"] == self.own and self.ballot["coordinator"] is None
        return own if term > farthest and has_failed else term

    def _farthest(self, now: float) -> int:
        """The newest term in which an election may be held, as far as this voter knows."""
        seen = self._claims.seen()
        if now >= self._stuck_at:
            seen = max(seen, min(self._claims.seen_with(self.own), self.ballot["term"] + MOST_AHEAD))
        return seen + FEW_TERMS

    def _run(self, term: int, now: float) -> None:
        self.ballot = made(Ballot, term=term, voted=self.own, coordinator=None)
        self._leads = False
        self._vote_at = now + VOTE_EVERY_S
        self._runs += 1
        self._stand_at = now + (TRIAL_S + SPREAD_S * self._random()) * 2 ** min(max(self._runs - 2, 0), 1)
        self._canvass(term, now, trial=False)

    def _canvass(self, term: int, now: float, *, trial: bool) -> None:
        self._is_trial, self._granted = trial, {self.own}
        self._candidacy = term
        canvass = {"type": "canvass", "term": term, "trial": trial, "memo": list(self.memo)}
        self._outbox += [(host, canvass) for host in self._others]
        self._tally(now)

    def _count(self, host: str, vote: Message, now: float) -> None:
        """Counts a vote.

        A voter that has missed an election learns of it from the answers, because the coordinator does not connect to
        it.
        """
        self.hear(host, claim_in(vote), now)
        is_asked = (vote["asked"], vote["trial"]) == (self._candidacy, self._is_trial)
        if self._granted is not None and is_asked and vote["granted"]:
            self._granted.add(host)
            self._tally(now)

    def _tally(self, now: float) -> None:
        if self._granted is None or len(self._granted) < self._majority:
            return
        if self._is_trial:
            self._run(self._candidacy, now)
        else:
            self._granted = None
            self.ballot = made(Ballot, term=self.ballot["term"], voted=self.own, coordinator=self.own)
            self._lead(now)

    def _lead(self, now: float) -> None:
        self._leads = True
        self._promised_until = max(self._promised_until, now + TRIAL_S)  # the first grants are on their way
        self._lease_at = self._had_lease_at = self._since = now
        self._stand_at = now + TRIAL_S + SPREAD_S * self._random()
        self._asked.clear()
        self._leases.clear()
        self._held.clear()

    def _ask_for_leases(self, now: float) -> None:
        """Requests leases; without one not always, because voters whose answers are lost would be bound for ever."""
        self._lease_at = now + LEASE_EVERY_S
        if (now - self._had_lease_at) % (ASKS_S + SILENT_S) > ASKS_S:
            return
        self._beat += 1
        self._asked = {beat: asked for beat, asked in self._asked.items() if now - asked < LEASE_S}
        self._asked[self._beat] = now
        lease = {"type": "lease", "term": self.ballot["term"], "beat": self._beat, "memo": list(self.memo)}
        self._outbox += [(host, lease) for host in self._others]

    def _lease_until(self) -> float:
        """When the lease ends, by the grants of a majority. Its own grant never ends."""
        asked = sorted(self._leases.values(), reverse=True)
        needed = self._majority - 1
        if needed == 0:
            return float("inf")
        return asked[needed - 1] + LEASE_S if len(asked) >= needed else float("-inf")
