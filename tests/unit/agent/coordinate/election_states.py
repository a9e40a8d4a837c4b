"""Electing hosts as values: equal ones behave alike from then on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from dtctl.agent.coordinate.claims import Claims, Patience
from dtctl.agent.coordinate.election import ASKS_S, LEASE_S, SILENT_S
from dtctl.agent.records.kinds import made
from dtctl.agent.records.whole_run import Ballot
from tests.unit.agent.coordinate.electing import Disk, Message, Voter, Witness
from tests.unit.agent.coordinate.election_world import Caller

FIXED = (
    "_had_lease_at",
    "_since",
    "own",
    "ballot",
    "_voters",
    "_others",
    "_majority",
    "_random",
    "_outbox",
    "_doubted",
)
TIMES = ("_promised_until", "_stand_at", "_lease_at", "_stuck_at", "_vote_at", "_repeat_until")
TIMES_OF = ("_asked", "_leases")
"""How old an entry is counts; one that is older than a lease is of no use."""


class Numbers:
    """Of values."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        number = self._known.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Calls(Witness):
    """Notes what a real one is to see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[Any, ...]]] = []

    def sees_election(self, *seen: Any) -> None:
        self.seen.append(("sees_election", seen))

    def sees_decision(self, *seen: Any) -> None:
        self.seen.append(("sees_decision", seen))

    def sees_order(self, *seen: Any) -> None:
        self.seen.append(("sees_order", seen))

    def sees_start(self, *seen: Any) -> None:
        self.seen.append(("sees_start", seen))


def frozen_voter(voter: Voter, now: float) -> Hashable:
    election = voter.election
    fields = [(name, _frozen_value(name, value, now)) for name, value in vars(election).items() if name not in FIXED]
    without_lease_s = (now - vars(election)["_had_lease_at"]) % (ASKS_S + SILENT_S) if election.leads else 0.0
    fields.append(("_had_lease_at", -round(without_lease_s, 3)))
    leases = tuple(sorted((host, frozen_message(lease)) for host, lease in voter.leases.items()))
    own = (voter.processes, voter.process, voter.coordinated, tuple(voter.held), voter.last_sent, leases)
    ballot, *kept = voter.disk
    return (
        voter.name,
        (ballot["term"], ballot["voted"], ballot["coordinator"]),
        tuple(kept),
        own,
        tuple(fields),
        election.has_lease(now),
    )


def thawed_voter(frozen: Any, caller: Caller, names: str) -> Voter:
    """At the time 0."""
    name, ballot, kept, own, election, _ = frozen
    disk = Disk(made(Ballot, term=ballot[0], voted=ballot[1], coordinator=ballot[2]), *kept)
    voter = caller.voter(name, names, (), disk, Calls())
    Voter.begin(voter, 0.0, lambda: 0.0, caller.election)
    voter.processes, voter.process, voter.coordinated, held, voter.last_sent, leases = own
    voter.held = list(held)
    voter.leases = {host: dict(lease) for host, lease in leases}
    for field, value in election:
        vars(voter.election)[field] = _thawed_value(field, value, vars(voter.election)[field])
    return voter


def _frozen_value(name: str, value: Any, now: float) -> Hashable:
    """Times are counted from now; whether one has passed is all that counts of it then."""
    frozen: Hashable = value
    if name in TIMES:
        frozen = max(0.0, round(value - now, 3))
    elif name in TIMES_OF:
        ages = {key: round(time - now, 3) for key, time in value.items()}
        frozen = tuple(sorted((key, age) for key, age in ages.items() if age > -LEASE_S))
    elif isinstance(value, Claims):
        frozen = tuple(sorted(vars(value)["_newest"].items()))
    elif isinstance(value, Patience):
        waits = [(host, max(0.0, round(at - now, 3))) for host, at in vars(value)["_next"].items()]
        frozen = (tuple(sorted(vars(value)["_times"].items())), tuple(sorted(waits)))
    elif isinstance(value, set):
        frozen = frozenset(value)
    elif isinstance(value, dict):
        frozen = tuple(sorted(value.items()))
    return frozen


def _thawed_value(name: str, value: Any, new: Any) -> Any:
    """`new`: as in a new process."""
    if isinstance(new, Claims):
        vars(new)["_newest"] = dict(value)
        return new
    if isinstance(new, Patience):
        vars(new)["_times"], vars(new)["_next"] = dict(value[0]), dict(value[1])
        return new
    if isinstance(value, frozenset):
        return set(value)
    return dict(value) if name in TIMES_OF or name == "_held" else value


def frozen_message(message: Message) -> Hashable:
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in message.items())


def frozen_witness(witness: Witness) -> Hashable:
    parts: list[Mapping[Any, Any]] = [witness.elected, witness.starts, witness.obeyed]
    return (*(tuple(sorted(part.items())) for part in parts), witness.decided)


def thawed_witness(frozen: Any) -> Witness:
    witness = Witness()
    elected, starts, obeyed, witness.decided = frozen
    witness.elected, witness.starts, witness.obeyed = dict(elected), dict(starts), dict(obeyed)
    return witness
