"""Connections of an agent to the voters of its run: to request their votes, and to ask which host each backs."""

from __future__ import annotations

import random

from ..records.spec import CoordinatorAddress, Spec, voters_of
from .claims import Claims, claim_in
from .superseded import EndClaims

TYPE_CHECKING = False
if TYPE_CHECKING:
    import select
    from typing import Any, Dict, Iterator, Mapping, Optional

    from ..link.dialer import Dialer
    from .claims import Claim, Place

    Message = Mapping[str, Any]

CALL_S = 6.0
"""How long it is tried to reach a voter."""

QUERY_EVERY_S = 2.0
QUERY: Message = {"type": "query"}


class Call:
    """A connection to a voter. Raises OSError if the credentials of this host are of no use."""

    def __init__(self, directory: str, run: str, place: CoordinatorAddress, now: float) -> None:
        from ..link.dialer import Dialer
        from ..link.tls import Identity

        self.until = now + CALL_S
        self._dialer: Dialer = Dialer(place["address"], place["host"], Identity(directory, run), now, random.random)
        self._messages: Dict[str, Message] = {}

    @property
    def requests_a_vote(self) -> bool:
        """Then its connection is that of this host."""
        return "canvass" in self._messages

    def say(self, message: Message, now: float) -> None:
        """Now or as soon as the voter is reached: the newest message of each type."""
        self._messages[message["type"]] = message
        self.until = now + CALL_S
        self._dialer.send(message)

    def step(self, now: float) -> Iterator[Message]:
        """The answers: votes and stances, or that the run is over."""
        for message in self._dialer.step(now):
            if message["type"] == "connected":
                for said in self._messages.values():
                    self._dialer.send(said)
            elif message["type"] in ("vote", "stance", "over"):
                yield message

    def register(self, waiting: select.poll) -> None:
        self._dialer.register(waiting)

    def due(self) -> float:
        due = self._dialer.due()
        return self.until if due is None else min(due, self.until)

    def close(self) -> None:
        self._dialer.close()


class Inquiry:
    """Which host coordinates, for an agent that does not vote: the one that a majority of the voters backs.

    `elected`: the newest term and coordinator that are known.
    """

    def __init__(self, directory: str, spec: Spec, elected: Place) -> None:
        self.elected = elected
        self.end = EndClaims([voter["host"] for voter in voters_of(spec)])
        self._directory, self._run = directory, spec["run"]
        self._places = {voter["host"]: voter for voter in voters_of(spec)}
        self._claims = Claims(self._places, elected[0])
        self._calls: Dict[str, Call] = {}
        self._next_at: Optional[float] = None

    def follows(self, host: str, term: int) -> bool:
        return self.elected == (term, host)

    def hear(self, host: str, claim: Claim) -> None:
        self._claims.hear(host, claim)
        found = self._claims.elected()
        if found is not None and found[0] > self.elected[0]:
            self.elected = found

    @property
    def coordinator(self) -> str:
        return self.elected[1]

    def query_voters(self, now: float, connected: Optional[str] = None) -> None:
        """Asks all voters but the one to which this agent is connected, unless that was done just now."""
        if self._next_at is not None and now < self._next_at:
            return
        self._next_at = now + QUERY_EVERY_S
        for host, place in self._places.items():
            if host != connected:
                if host not in self._calls:
                    self._calls[host] = Call(self._directory, self._run, place, now)
                self._calls[host].say(QUERY, now)

    def step(self, now: float) -> None:
        for host, call in list(self._calls.items()):
            for message in call.step(now):
                if message["type"] == "over":
                    self.end.hear(host, removed=message["removed"])
                else:
                    self.hear(host, claim_in(message))
            if now >= call.until:
                self._calls.pop(host).close()

    def register(self, waiting: select.poll) -> None:
        for call in self._calls.values():
            call.register(waiting)

    def due(self) -> Optional[float]:
        return min((call.due() for call in self._calls.values()), default=None)

    def close(self) -> None:
        for call in self._calls.values():
            call.close()
        self._calls.clear()
