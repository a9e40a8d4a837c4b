"""Every order in which few electing hosts may act, each on a clock of its own, or all by one clock.

A state of the whole is each voter's, by number, with the messages under way. What a voter does in one of its states is
worked out once, however many of the whole's that is part of. A message is received at any time later, or never; those
of one kind between two hosts keep their order. A crash before a write, a message or its arrival is a restart after
which what it would have sent is never received.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.unit.agent.coordinate.electing import Message, Violation, Voter, Witness, first_disk
from tests.unit.agent.coordinate.election_states import (
    Calls,
    Numbers,
    frozen_message,
    frozen_voter,
    frozen_witness,
    thawed_voter,
    thawed_witness,
)
from tests.unit.agent.coordinate.election_world import Caller

WAITS, RESTARTS, DECIDES = "waits, and acts", "restarts", "decides"


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
        witness = self._witness(self._witnesses.of(frozen_witness(Witness())), tuple(seen))
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
            elif isinstance(action, int):
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
        number = self._messages.of((sender, host, frozen_message(message)))
        if number == len(self._hosts):
            self._hosts.append(self._names.index(host))
            self._links.append(f"{sender} {host} {message['type']}")
        return number

    def _number(self, voter: Voter, now: float) -> int:
        number = self._voters.of(frozen_voter(voter, now))
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
            witness = thawed_witness(self._witnesses.values[number])
            for name, values in seen:
                getattr(witness, name)(*values)
            self._views[key] = self._witnesses.of(frozen_witness(witness))
        return self._views[key]

    def _thawed(self, number: int) -> Voter:
        return thawed_voter(self._voters.values[number], self._caller, self._names)


def _path(before: Mapping[State, tuple[State, Action] | None], state: State) -> list[Action]:
    actions = []
    step = before[state]
    while step is not None:
        actions.append(step[1])
        step = before[step[0]]
    return actions[::-1]
