"""Voters that lie, beside crashes and cuts: what they send is arbitrary, but each sends it under its own name.

A trial with liars keeps other promises than one without. A majority that contains liars may elect two coordinators of
one term while the honest voters cannot talk to each other, and what a liar claims to hold may be lost. What holds:

- no host obeys a coordinator unless as many honest voters have voted for it as a majority contains at least;
- terms stay far from the largest one;
- without faults the first coordinator goes on, and is never without its lease for long;
- soon after the faults one honest voter has a lease and every host obeys it, where honest voters are a majority and
  have not elected a liar, which may order its run like any coordinator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from dtctl.agent.coordinate.election import LEASE_EVERY_S
from dtctl.agent.records.kinds import InvalidValue
from dtctl.agent.records.whole_run import Ballot
from tests.unit.agent.coordinate.electing import Message, Violation, Witness
from tests.unit.agent.coordinate.election_trial import FAULTS_END_S, Trial
from tests.unit.agent.coordinate.election_world import Caller, Fault, Network

LARGEST = 2**53
MOST_TERM = 100_000_000
MOST_ELECTIONS = 12
"""Of a trial without faults, in which a term rises by two at most with each."""

LEASELESS_S = 8.0
OFTEN_S = (0.05, 0.5, 2.0)


class Liar:
    """`attack` makes its answers, and what it sends by itself every now and then."""

    def __init__(self, name: str, voters: Sequence[str], agents: Sequence[str], random: random.Random) -> None:
        self.name, self.voters, self.random = name, voters, random
        self.hosts = [host for host in agents if host != name]
        self.others = [voter for voter in voters if voter != name]
        self.attack: Callable[[Liar, str | None, Message], list[tuple[str, Message]]] = random.choice(ATTACKS)
        self.every_s = random.choice(OFTEN_S)
        self.heard: list[Message] = []
        self.base = random.choice((5, 50, 3000, 10**6, 10**9, LARGEST - 1))
        self.sent = 0

    def receive(self, host: str, message: Message) -> list[tuple[str, Message]]:
        self.heard = [*self.heard[-50:], message]
        return self.attack(self, host, message)

    def act(self) -> list[tuple[str, Message]]:
        return self.attack(self, None, {})

    def newest(self) -> int:
        """The newest term of the honest ones, as far as it was heard."""
        return max((message["term"] for message in self.heard[-20:] if "term" in message), default=1)

    def term(self) -> int:
        near = self.newest() + self.random.choice((-3, -1, 0, 0, 1, 1, 2, 3, 10))
        return max(0, self.random.choice((near, near, near, self.base, LARGEST)))


Sent = list[tuple[str, Message]]


def stance(term: int, backs: str | None, elected: bool = True) -> Message:
    return {"type": "stance", "term": term, "backs": backs, "elected": elected}


def answer(asked: Message, term: int, backs: str | None, granted: bool, elected: bool = True) -> Message:
    """The answer of the type that fits, whatever it says."""
    said = stance(term, backs, elected)
    if asked["type"] == "canvass":
        return {**said, "type": "vote", "asked": asked["term"], "trial": asked["trial"], "granted": granted}
    if asked["type"] == "lease":
        return {**said, "type": "granted", "beat": asked["beat"], "memo": asked["memo"]}
    return said


ASKS = ("lease", "canvass", "query")


def takes_over(liar: Liar, host: str | None, message: Message) -> Sent:
    """The newest term is its own, and it coordinates in it."""
    if host is not None and message["type"] in ASKS:
        return [(host, answer(message, liar.base, liar.name, granted=False))]
    if host is None:
        order = {"type": "order", "term": liar.base, "memo": ("by the liar",)}
        return [(other, order) for other in liar.hosts]
    return []


def counts_up(liar: Liar, host: str | None, message: Message) -> Sent:
    """Always a little newer than what it hears."""
    if host is not None and message["type"] in ASKS:
        return [(host, answer(message, message.get("term", 1) + liar.random.randint(1, 2), liar.name, granted=False))]
    return []


def stands(liar: Liar, host: str | None, message: Message) -> Sent:
    """Wants to be elected all the time, and never coordinates."""
    if host is not None and message["type"] in ASKS:
        return [(host, answer(message, liar.newest(), liar.name, granted=False))]
    canvass = {"type": "canvass", "term": liar.newest() + 1, "trial": liar.random.random() < 0.3, "memo": [LARGEST, 0]}
    return [(other, canvass) for other in liar.others] if host is None else []


def coordinates(liar: Liar, host: str | None, message: Message) -> Sent:
    """Sends leases and orders as the coordinator of a term that is there or could be."""
    if host is not None:
        return [(host, answer(message, liar.newest(), liar.name, granted=False))] if message["type"] in ASKS else []
    term = liar.newest() + liar.random.randint(0, 2)
    lease = {"type": "lease", "term": term, "beat": 1, "memo": [term, 1], "decisions": ("by the liar",)}
    order = {"type": "order", "term": term, "memo": ("by the liar",)}
    return [*((other, lease) for other in liar.others), *((other, order) for other in liar.hosts)]


def agrees_with_all(liar: Liar, host: str | None, message: Message) -> Sent:
    """Votes for each candidate, and follows each coordinator that it hears."""
    if host is None or message["type"] not in ASKS:
        return []
    return [(host, answer(message, message.get("term", liar.newest()), host, granted=True))]


def promises_only(liar: Liar, host: str | None, message: Message) -> Sent:
    """It would vote for everybody, and votes for nobody."""
    if host is None or message["type"] not in ASKS:
        return []
    return [(host, answer(message, max(0, liar.newest() - 1), None, granted=bool(message.get("trial")), elected=False))]


def replays(liar: Liar, host: str | None, message: Message) -> Sent:
    """Sends what others have sent to it, as its own."""
    del host, message
    if not liar.heard:
        return []
    return [(liar.random.choice(liar.hosts), liar.random.choice(liar.heard)) for _ in range(2)]


def raves(liar: Liar, host: str | None, message: Message) -> Sent:
    """Anything, in other hosts' names too."""
    chance = liar.random
    backs, term = chance.choice([*liar.voters, None]), liar.term()
    memo = [chance.choice((0, term, liar.newest(), LARGEST)), chance.choice((0, 1, 7, LARGEST))]
    asked = message if message.get("type") in ASKS else {"type": "query"}
    options: list[Message] = [
        answer(asked, term, backs, chance.random() < 0.5, chance.random() < 0.5),
        stance(term, backs, chance.random() < 0.7),
        {"type": "canvass", "term": term, "trial": chance.random() < 0.5, "memo": memo},
        {"type": "lease", "term": term, "beat": chance.randrange(9), "memo": memo, "decisions": ("by the liar",)},
        {"type": "order", "term": term, "memo": ("by the liar",)},
        {**stance(term, backs), "type": "granted", "beat": chance.randrange(9), "memo": memo},
    ]
    receivers = [host] if host is not None and chance.random() < 0.7 else [chance.choice(liar.others)]
    return [(str(receiver), chance.choice(options)) for receiver in receivers]


ATTACKS = (
    takes_over,
    takes_over,
    counts_up,
    stands,
    coordinates,
    agrees_with_all,
    promises_only,
    replays,
    raves,
    raves,
)


class Jury(Witness):
    """Sees which honest voters have voted for whom. `liars` voters lie."""

    def __init__(self, needed: int) -> None:
        super().__init__()
        self.needed = needed
        self.votes: dict[tuple[int, str], set[str]] = {}

    def sees_ballot(self, host: str, ballot: Ballot) -> None:
        if ballot["voted"] is not None:
            self.votes.setdefault((ballot["term"], ballot["voted"]), set()).add(host)

    def sees_election(self, process: str, term: int, memo: tuple[str, ...]) -> None:
        pass

    def sees_decision(self, process: str, version: tuple[int, int], memo: tuple[str, ...]) -> None:
        if len(memo) > len(self.decided[1]):
            self.decided = (version, memo)

    def sees_start(self, host: str, memo: tuple[str, ...]) -> None:
        pass

    def sees_order(self, host: str, term: int, coordinator: str) -> None:
        super().sees_order(host, term, coordinator)
        voters = self.votes.get((term, coordinator), set())
        if term > 1 and len(voters) < self.needed:
            raise Violation(f"{host} obeys {coordinator} in term {term}, for which {len(voters)} honest voters voted")


class LiarNetwork(Network):
    def __init__(self, seed: int, voters: Sequence[str], others: Sequence[str], caller: Caller, liars: int) -> None:
        super().__init__(seed, voters, others, caller)
        names = voters[-liars:] if self.random.random() < 0.7 else self.random.sample(voters[1:], liars)
        self.leases_exclude = False
        self.jury = Jury(self.majority - liars)
        self.witness = self.jury
        self.liars = {
            name: Liar(name, voters, [*voters, *others], random.Random(f"{name} of {seed}")) for name in sorted(names)
        }
        for name in names:
            del self.machines[name]
        for host in [*(machine.voter for machine in self.machines.values()), *self.agents.values()]:
            host.witness = self.jury

    def begin(self) -> None:
        super().begin()
        for liar in self.liars.values():
            self.at(self.random.random(), self._act, liar)

    def _act(self, liar: Liar) -> None:
        self._lie(liar, liar.act())
        self.at(self.time + liar.every_s * (0.5 + self.random.random()), self._act, liar)

    def _lie(self, liar: Liar, messages: Sent) -> None:
        for host, message in messages:
            self.tell(f"{liar.name} lies to {host}: {message}")
            self._send(liar.name, host, message)

    def _deliver(self, sender: str, host: str, message: Message) -> None:
        if host in self.liars:
            self._lie(self.liars[host], self.liars[host].receive(sender, message))
        elif host in self.agents and message["type"] not in ("order", "stance"):
            return
        else:
            try:
                super()._deliver(sender, host, message)
            except InvalidValue as wrong:
                raise Violation(f"{host} cannot write its ballot: {wrong}") from None

    def coordinating_liar(self) -> str | None:
        """A liar whom a majority's honest part follows: it was elected, and its leases bind."""
        followed = [machine.voter.election.coordinator for machine in self.machines.values() if machine.is_up]
        return next((name for name in self.liars if followed.count(name) >= self.jury.needed), None)


class LiarTrial(Trial):
    """Without faults in some of the trials."""

    elected_s = reached_s = 60.0

    def __init__(self, seed: int, caller: Caller | None = None, faults: Sequence[Fault] | None = None) -> None:
        chosen = random.Random(f"liars of {seed}")
        super().__init__(seed, caller, faults)
        count, self.liars = chosen.choice(((3, 1), (3, 1), (3, 1), (7, 2), (7, 2), (5, 1), (5, 2)))
        self.voters = "abcdefg"[:count]
        self.is_wild = False
        self.is_calm = chosen.random() < 0.3
        if self.ending in ("cut off", "mute"):
            self.ending = ""
        self.liar_network = LiarNetwork(seed, self.voters, "xy"[: chosen.randrange(3)], caller or Caller(), self.liars)
        self.liar_network.spread, self.liar_network.delay_s = self.network.spread, min(self.network.delay_s, 0.1)
        self.network = self.liar_network
        if self.is_calm and faults is None:
            self.planned = self.faults = []
        self.leaseless_s = 0.0

    def run(self) -> None:
        if not self.is_calm:
            super().run()
            self._check_terms()
            return
        self.network.begin()
        for at in self._decide_at:
            self.network.at(at, self.network.ask)
        since = 0.0
        while self.network.time < FAULTS_END_S:
            self.network.run_until(self.network.time + 0.5)
            if self.network.coordinator() is not None:
                since = self.network.time
            self.leaseless_s = max(self.leaseless_s, self.network.time - since)
        if self.leaseless_s > LEASELESS_S:
            raise Violation(f"no honest voter had a lease for {self.leaseless_s:.1f} s, though all are connected")
        most = 1 + 2 * MOST_ELECTIONS
        for machine in self.network.machines.values():
            if machine.voter.election.ballot["term"] > most:
                raise Violation(f"{machine.voter.name} has reached term {machine.voter.election.ballot['term']}")
        self._settles("the beginning")
        self._check_leases()

    def _settles(self, what: str) -> None:
        """An honest one coordinates. A liar that was elected ends the trial, as do two coordinators of a liar."""
        try:
            super()._settles(what)
        except Violation:
            if self.is_calm or not self._is_lost():
                raise
        if self._is_lost() and not self.is_calm:
            self.ending = ""
        else:
            self._check_leases()

    def _is_lost(self) -> bool:
        """A liar was elected, or gives two coordinators the word that each needs for a majority."""
        if self.liar_network.coordinating_liar() is not None:
            return True
        gives = any(liar.attack in (agrees_with_all, raves) for liar in self.liar_network.liars.values())
        return gives and len(self._holding()) != 1

    def _holding(self) -> list[str]:
        machines = self.network.machines.items()
        now = self.network.time
        return [name for name, one in machines if one.is_up and one.voter.election.has_lease(one.now(now))]

    def _check_leases(self) -> None:
        """With all faults over, there is one."""
        network = self.network
        network.run_until(network.time + 6 * LEASE_EVERY_S)
        if not network.run_until(network.time + LEASELESS_S, lambda: len(self._holding()) == 1):
            if self.is_calm or not self._is_lost():
                raise Violation(f"{len(self._holding())} voters have a lease")
            self.ending = ""

    def _check_terms(self) -> None:
        for machine in self.network.machines.values():
            if machine.voter.election.ballot["term"] > MOST_TERM:
                raise Violation(f"{machine.voter.name} has reached term {machine.voter.election.ballot['term']}")
