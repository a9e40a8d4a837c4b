"""Hosts that elect a run's coordinator: each drives a real Election as its agent does, and one witness sees them all.

The memo is the list of the run's decisions so far, each by its own name; its length is the generation that the agents
start. What a host writes is on its disk at once, as the agent waits for the disk (`paths.sync`) before it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dtctl.agent.coordinate.claims import Claims, claim_in, stance_of
from dtctl.agent.coordinate.election import Election
from dtctl.agent.records.kinds import made
from dtctl.agent.records.whole_run import Ballot

Message = Mapping[str, Any]
Decisions = tuple[str, ...]
Version = tuple[int, int]

FIRST_TERM = 1
ORDER_AGAIN_S = 5.0


class Violation(AssertionError):
    """What must never happen, has."""


class Disk(NamedTuple):
    """Of one host: ballot.json, memo.json, and the newest generation that its tasks were started in."""

    ballot: Ballot
    version: Version
    memo: Decisions
    started: int


class Witness:
    """Sees all hosts at once, and raises Violation."""

    def __init__(self) -> None:
        self.elected: dict[int, str] = {}
        """The one process that coordinates in each term."""
        self.decided: tuple[Version, Decisions] = ((0, 0), ())
        """The longest memo whose orders were sent."""
        self.starts: dict[int, str] = {}
        self.obeyed: dict[str, int] = {}

    def copy(self) -> Witness:
        copy = Witness()
        copy.elected, copy.decided = dict(self.elected), self.decided
        copy.starts, copy.obeyed = dict(self.starts), dict(self.obeyed)
        return copy

    def sees_election(self, process: str, term: int, memo: Decisions) -> None:
        first = self.elected.setdefault(term, process)
        if first != process:
            raise Violation(f"{first} and {process} coordinate in term {term}")
        version, decisions = self.decided
        if term > version[0] and memo[: len(decisions)] != decisions:
            raise Violation(f"{process} is elected in term {term} without {decisions[-1]}, whose orders were sent")

    def sees_decision(self, process: str, version: Version, memo: Decisions) -> None:
        known = self.decided[1]
        least = min(len(known), len(memo))
        if known[:least] != memo[:least]:
            raise Violation(f"{process} sends orders of {memo[least - 1]} against {known[least - 1]}")
        if len(memo) > len(known) or version > self.decided[0]:
            self.decided = (max(version, self.decided[0]), max(memo, known, key=len))

    def sees_ballot(self, host: str, ballot: Ballot) -> None:
        """It is on the host's disk."""

    def sees_order(self, host: str, term: int, coordinator: str) -> None:
        if term < self.obeyed.get(host, 0):
            raise Violation(f"{host} obeys term {term} after term {self.obeyed[host]}")
        self.obeyed[host] = term

    def sees_start(self, host: str, memo: Decisions) -> None:
        first = self.starts.setdefault(len(memo), memo[-1])
        if first != memo[-1]:
            raise Violation(f"{host} starts {memo[-1]} in generation {len(memo)}, which others started for {first}")


class Agent:
    """One that does not vote: it obeys the coordinator of the newest term in which a majority backs one."""

    def __init__(self, name: str, voters: Sequence[str], disk: Disk, witness: Witness) -> None:
        self.name, self.voters, self.disk, self.witness = name, voters, disk, witness
        self.claims = Claims(voters, FIRST_TERM)
        self.orders: dict[str, Message] = {}
        """Orders of hosts of which it does not know that they coordinate."""

    def receive(self, host: str, message: Message, now: float) -> list[tuple[str, Message]]:
        """Returns what it sends."""
        sent: list[tuple[str, Message]] = []
        if message["type"] == "stance":
            self.claims.hear(host, claim_in(message))
        elif message["type"] == "order":
            self.claims.hear(host, (message["term"], host, True))
            self.orders[host] = message
            sent = [(voter, {"type": "query"}) for voter in self.voters if voter != host]
        place = self.claims.elected()
        if place is not None and place[0] > self.disk.ballot["term"]:
            ballot = made(Ballot, term=place[0], voted=None, coordinator=place[1])
            self.disk = self.disk._replace(ballot=ballot)
        return [] if self._obey_orders(now) else sent

    def follows(self, host: str, term: int) -> bool:
        return (term, host) == (self.disk.ballot["term"], self.disk.ballot["coordinator"])

    def _obey_orders(self, now: float) -> bool:
        """Whether there were any."""
        held = [host for host, order in self.orders.items() if self.follows(host, order["term"])]
        for host in held:
            order = self.orders.pop(host)
            self.obey(order["term"], host, order["memo"])
        return bool(held)

    def obey(self, term: int, coordinator: str, memo: Decisions) -> None:
        self.witness.sees_order(self.name, term, coordinator)
        if len(memo) > self.disk.started:
            self.disk = self.disk._replace(started=len(memo))
            self.witness.sees_start(self.name, memo)


class Voter(Agent):
    """`begin` is its process; what is not in `disk` ends with it."""

    election: Election

    def __init__(self, name: str, voters: Sequence[str], agents: Sequence[str], disk: Disk, witness: Witness) -> None:
        super().__init__(name, voters, disk, witness)
        self.agents = agents
        self.processes = 0
        self.before = disk
        """What a disk without the last write would hold."""

    def begin(self, now: float, random: Callable[[], float], kind: type[Election] = Election) -> None:
        ballot, version = self.disk.ballot, self.disk.version
        begins = self.processes == 0
        self.election = kind(self.name, self.voters, ballot, version, now, random, begins=begins)
        self.processes += 1
        self.process = f"{self.name}{self.processes}"
        self.is_asked = False
        self.coordinated = 0
        """The term for which it has written a memo."""
        self.held: list[tuple[Version, Decisions]] = []
        self.last_sent: Decisions = ()
        self.send_again_at = now
        self.leases: dict[str, Message] = {}
        self.orders = {}

    def receive(self, host: str, message: Message, now: float) -> list[tuple[str, Message]]:
        if message["type"] == "query":
            return [(host, {"type": "stance", **stance_of(self.disk.ballot)})]
        if message["type"] in ("lease", "order"):
            self.election.hear_of_coordinator(host, message["term"], now)
            (self.leases if message["type"] == "lease" else self.orders)[host] = message
            if message["type"] == "lease" and not self.follows(host, message["term"]):
                self.election.receive(host, message, now)
        else:
            self.election.receive(host, message, now)
        for other, lease in list(self.leases.items()):
            if self.follows(other, lease["term"]):
                self._take_lease(other, self.leases.pop(other), now)
        self.save()
        self._obey_orders(now)
        return []

    def follows(self, host: str, term: int) -> bool:
        return self.election.follows(host, term)

    def _take_lease(self, host: str, lease: Message, now: float) -> None:
        version = (lease["memo"][0], lease["memo"][1])
        if "decisions" in lease and self.election.memo < version and version[0] <= lease["term"]:
            self._write(self.disk._replace(version=version, memo=lease["decisions"]))
            self.election.memo = version
        self.election.receive(host, lease, now)

    def step(self, now: float) -> list[tuple[str, Message]]:
        """What it sends, after what has to be on the disk by then."""
        orders = self._coordinate(now) if self.election.leads else []
        self.election.step(now)
        self.save()
        return [(host, self._with_memo(host, message)) for host, message in self.election.take()] + orders

    def save(self) -> None:
        if self.disk.ballot is not self.election.ballot:
            self._write(self.disk._replace(ballot=self.election.ballot))
            self.witness.sees_ballot(self.name, self.election.ballot)

    def _write(self, disk: Disk) -> None:
        self.before, self.disk = self.disk, disk

    def _with_memo(self, host: str, message: Message) -> Message:
        if message["type"] == "lease" and self.election.wants_news(host):
            return {**message, "decisions": self.disk.memo}
        return message

    def _coordinate(self, now: float) -> list[tuple[str, Message]]:
        term = self.election.ballot["term"]
        if self.coordinated != term:
            self.coordinated, self.held, self.last_sent = term, [], ()
            self.witness.sees_election(self.process, term, self.disk.memo)
            self._publish(self.disk.memo, now)
        if self.is_asked and self.election.has_lease(now):
            self.is_asked = False
            self._publish((*self.disk.memo, f"{self.process}.{term}.{len(self.disk.memo)}"), now)
        return self._orders(term, now)

    def _publish(self, memo: Decisions, now: float) -> None:
        version = (self.election.ballot["term"], self.disk.version[1] + 1)
        self._write(self.disk._replace(version=version, memo=memo))
        self.election.publish(version[1], now)
        self.held.append((version, memo))

    def _orders(self, term: int, now: float) -> list[tuple[str, Message]]:
        committed, is_new = self.election.committed, False
        while self.held and committed >= self.held[0][0]:
            version, self.last_sent = self.held.pop(0)
            self.witness.sees_decision(self.process, version, self.last_sent)
            is_new = True
        if not self.last_sent or not (is_new or now >= self.send_again_at):
            return []
        self.send_again_at = now + ORDER_AGAIN_S
        self.obey(term, self.name, self.last_sent)
        order = {"type": "order", "term": term, "memo": self.last_sent}
        return [(agent, order) for agent in self.agents if agent != self.name]


def first_disk(coordinator: str) -> Disk:
    """As `up` leaves it: all know who coordinates in the first term."""
    return Disk(made(Ballot, term=FIRST_TERM, voted=coordinator, coordinator=coordinator), (0, 0), (), 0)
