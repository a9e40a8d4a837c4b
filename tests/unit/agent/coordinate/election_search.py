"""Every order in which few electing hosts may act, each on a clock of its own, or all by one clock.

A state is a voter's by number, of each voter, with the messages under way. What a voter does in one of its states is
worked out once, however many states of the whole it is part of. A message may be delivered at any time later, or never;
a crash before or after a write or a message is a restart after which what it would have sent is never delivered.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dtctl.agent.coordinate.election import LEASE_S
from dtctl.agent.records.kinds import made
from dtctl.agent.records.whole_run import Ballot
from tests.unit.agent.coordinate.electing import Disk, Message, Violation, Voter, Witness, first_disk
from tests.unit.agent.coordinate.election_world import Caller

FIXED = ("own", "ballot", "_others", "_majority", "_random", "_outbox")
WAITS, RESTARTS, DECIDES = "waits, and acts", "restarts", "decides"

BALLOT = ("term", "voted", "coordinator")
TIMES = ("_promised_until", "_stand_at", "_lease_at")
TIMES_OF = ("_asked", "_leases")
"""How old an entry is counts; one that is older than a lease is of no use."""


class Limits(NamedTuple):
    """How often each may happen on a path."""

    timeouts: int
    restarts: int
    decisions: int
    has_one_clock: bool = False
    most_states: int = 10_000_000


State = tuple[tuple[int, ...], tuple[int, ...], int, int, int, int]
"""Voters, messages under way and witness by number; how many timeouts, restarts and decisions are left."""

Action = tuple[int, "int | str"]
"""Of which voter; the message that it receives, or what else it does."""


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


class Outcome(NamedTuple):
    """Of one action of one voter."""

    voter: int
    sent: tuple[int, ...]
    seen: tuple[Any, ...]
    passes_s: float = 0.0


class Search:
    """`run` visits all states; `depth` and `states` are then how far that went."""

    def __init__(self, limits: Limits, caller: Caller | None = None, voters: str = "abc") -> None:
        self._limits, self._caller, self._names = limits, caller or Caller(), voters
        self._voters, self._messages, self._witnesses = Numbers(), Numbers(), Numbers()
        self._outcomes: dict[tuple[int, int | str], Outcome] = {}
        self._views: dict[tuple[int, tuple[Any, ...]], int] = {}
        self._later: dict[tuple[int, float], int] = {}
        self._due: dict[int, float] = {}
        self._void: dict[tuple[int, int], bool] = {}
        self._hosts: list[int] = []
        self._links: list[str] = []
        """Of each message: to which voter, and with which others it keeps its order."""
        self.depth = self.states = 0
        self.is_whole = True

    def run(self) -> None:
        """Raises Violation, with the actions that lead to it."""
        first = self._first()
        before: dict[State, tuple[State, Action] | None] = {first: None}
        level = [first]
        while level and self.is_whole:
            following: list[State] = []
            for state in level:
                for action in self._actions(state):
                    try:
                        after = self._after(state, action)
                    except Violation as violation:
                        path = [*_path(before, state), action]
                        raise Violation("\n".join([str(violation), *map(self._told, path)])) from None
                    if after not in before:
                        before[after] = (state, action)
                        following.append(after)
            self.states = len(before)
            self.is_whole = self.states < self._limits.most_states
            self.depth += bool(following)
            level = following

    def _first(self) -> State:
        sent: list[int] = []
        seen: list[Any] = []
        numbers = []
        for name in self._names:
            voter = self._caller.voter(name, self._names, (), first_disk(self._names[0]), Calls())
            voter.begin(0.0, lambda: 0.0, self._caller.election)
            outcome = self._outcome(voter, 0.0)
            numbers.append(outcome.voter)
            sent += outcome.sent
            seen += outcome.seen
        witness = self._witness(self._witnesses.of(_frozen_witness(Witness())), tuple(seen))
        limits = self._limits
        return tuple(numbers), self._with((), sent), witness, limits.timeouts, limits.restarts, limits.decisions

    def _actions(self, state: State) -> Iterator[Action]:
        voters, messages, _, timeouts, restarts, decisions = state
        for message in messages:
            yield self._hosts[message], message
        for index, voter in enumerate(voters):
            if timeouts and self._is_next(voter, voters):
                yield index, WAITS
            if restarts:
                yield index, RESTARTS
            if decisions and self._voters.values[voter][-1]:
                yield index, DECIDES

    def _is_next(self, voter: int, voters: Sequence[int]) -> bool:
        """By one clock nobody waits past another's time."""
        return not self._limits.has_one_clock or self._due[voter] <= min(self._due[one] for one in voters)

    def _after(self, state: State, action: Action) -> State:
        numbers, messages, witness, timeouts, restarts, decisions = state
        index, what = action
        outcome = self._act(numbers[index], what)
        voters = list(numbers)
        if outcome.passes_s and self._limits.has_one_clock:
            voters = [self._shifted(voter, outcome.passes_s) for voter in voters]
        voters[index] = outcome.voter
        if outcome.seen:
            witness = self._witness(witness, outcome.seen)
        if self._limits.has_one_clock:
            self._check_leases(voters)
        if isinstance(what, int):
            messages = self._without(messages, what)
        else:
            timeouts, restarts = timeouts - (what == WAITS), restarts - (what == RESTARTS)
            decisions -= what == DECIDES
        if outcome.sent:
            messages = self._with(messages, outcome.sent)
        if outcome.voter != numbers[index]:
            messages = tuple(
                one for one in messages if self._hosts[one] != index or not self._is_void(outcome.voter, one)
            )
        return tuple(voters), messages, witness, timeouts, restarts, decisions

    def _with(self, messages: tuple[int, ...], sent: Sequence[int]) -> tuple[int, ...]:
        """By links, and on each in the order in which they were sent."""
        new = [message for message in sent if message not in messages]
        return tuple(sorted([*messages, *new], key=self._links.__getitem__))

    def _without(self, messages: tuple[int, ...], message: int) -> tuple[int, ...]:
        """It is received; what was sent before it on its link is lost."""
        place, link = messages.index(message), self._links[message]
        return tuple(one for index, one in enumerate(messages) if index > place or self._links[one] != link)

    def _is_void(self, voter: int, message: int) -> bool:
        """An answer that will never change anything, as it is about a term that is over."""
        known = self._void.get((voter, message))
        if known is None:
            fields = dict(self._messages.values[message][2])
            election = self._thawed(voter).election
            term = election.ballot["term"]
            known = fields["type"] == "granted" and fields["term"] < term
            if fields["type"] == "vote" and fields["term"] <= term:
                is_asked = vars(election)["_granted"] is not None and vars(election)["_candidacy"] == fields["asked"]
                known = not fields["granted"] or (fields["asked"] <= term and not is_asked)
            self._void[voter, message] = known
        return known

    def _check_leases(self, voters: Sequence[int]) -> None:
        holding = [name for name, voter in zip(self._names, voters, strict=True) if self._voters.values[voter][-1]]
        if len(holding) > 1:
            raise Violation(f"{' and '.join(holding)} have a lease")

    def _told(self, action: Action) -> str:
        index, what = action
        if not isinstance(what, int):
            return f"{self._names[index]} {what}"
        sender, host, text = self._messages.values[what]
        return f"{host} receives from {sender}: " + " ".join(f"{key}={value}" for key, value in text)

    def _act(self, number: int, action: int | str) -> Outcome:
        outcome = self._outcomes.get((number, action))
        if outcome is None:
            voter, now = self._thawed(number), 0.0
            if action == WAITS:
                now = max(0.0, voter.election.due())
            elif action == RESTARTS:
                voter.begin(now, lambda: 0.0, self._caller.election)
            elif action == DECIDES:
                voter.is_asked = voter.election.has_lease(now)
            else:
                sender, _, text = self._messages.values[action]
                voter.receive(sender, dict(text), now)
            outcome = self._outcome(voter, now)
            self._outcomes[number, action] = outcome
        return outcome

    def _outcome(self, voter: Voter, now: float) -> Outcome:
        calls = voter.witness
        assert isinstance(calls, Calls)
        sent = tuple(self._message(voter.name, host, message) for host, message in voter.step(now))
        number = self._number(voter, now)
        return Outcome(number, sent, tuple(calls.seen), now)

    def _message(self, sender: str, host: str, message: Message) -> int:
        number = self._messages.of((sender, host, _frozen_message(message)))
        if number == len(self._hosts):
            self._hosts.append(self._names.index(host))
            self._links.append(f"{sender} {host} {message['type']}")
        return number

    def _number(self, voter: Voter, now: float) -> int:
        number = self._voters.of(_frozen_voter(voter, now))
        self._due[number] = max(0.0, voter.election.due() - now)
        return number

    def _shifted(self, number: int, passes_s: float) -> int:
        later = self._later.get((number, passes_s))
        if later is None:
            later = self._number(self._thawed(number), passes_s)
            self._later[number, passes_s] = later
        return later

    def _witness(self, number: int, seen: tuple[Any, ...]) -> int:
        if not seen:
            return number
        key = (number, seen)
        if key not in self._views:
            witness = _thawed_witness(self._witnesses.values[number])
            for name, values in seen:
                getattr(witness, name)(*values)
            self._views[key] = self._witnesses.of(_frozen_witness(witness))
        return self._views[key]

    def _thawed(self, number: int) -> Voter:
        name, ballot, kept, own, election, _ = self._voters.values[number]
        disk = Disk(made(Ballot, **dict(ballot)), *kept)
        voter = self._caller.voter(name, self._names, (), disk, Calls())
        Voter.begin(voter, 0.0, lambda: 0.0, self._caller.election)
        voter.processes, voter.process, voter.coordinated, held, voter.last_sent = own
        voter.held = list(held)
        for field, value in election:
            vars(voter.election)[field] = _thawed_value(field, value)
        return voter


def _frozen_voter(voter: Voter, now: float) -> Hashable:
    election = voter.election
    fields = [
        (name, _frozen_value(name, value, now)) for name, value in vars(election).items() if name not in FIXED
    ]
    own = (voter.processes, voter.process, voter.coordinated, tuple(voter.held), voter.last_sent)
    ballot, *kept = voter.disk
    return voter.name, tuple((name, ballot[name]) for name in BALLOT), tuple(kept), own, tuple(fields), election.has_lease(now)


def _frozen_value(name: str, value: Any, now: float) -> Hashable:
    """Times are counted from now; whether one has passed is all that counts of it then."""
    if name in TIMES:
        return max(0.0, round(value - now, 3))
    if name in TIMES_OF:
        ages = {key: round(time - now, 3) for key, time in value.items()}
        return tuple(sorted((key, age) for key, age in ages.items() if age > -LEASE_S))
    if isinstance(value, set):
        return frozenset(value)
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _thawed_value(name: str, value: Any) -> Any:
    if isinstance(value, frozenset):
        return set(value)
    return dict(value) if name in TIMES_OF or name == "_held" else value


def _frozen_message(message: Message) -> Hashable:
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in message.items())


def _frozen_witness(witness: Witness) -> Hashable:
    parts: list[Mapping[Any, Any]] = [witness.elected, witness.starts, witness.obeyed]
    return (*(tuple(sorted(part.items())) for part in parts), witness.decided)


def _thawed_witness(frozen: Any) -> Witness:
    witness = Witness()
    elected, starts, obeyed, witness.decided = frozen
    witness.elected, witness.starts, witness.obeyed = dict(elected), dict(starts), dict(obeyed)
    return witness


def _path(before: Mapping[State, tuple[State, Action] | None], state: State) -> list[Action]:
    actions = []
    step = before[state]
    while step is not None:
        actions.append(step[1])
        step = before[step[0]]
    return actions[::-1]
