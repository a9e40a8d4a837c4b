"""Bugs that an election may have, each put into the real one or into what surrounds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple, cast

from dtctl.agent.coordinate import election
from dtctl.agent.coordinate.election import Election
from tests.unit.agent.coordinate.electing import Voter, first_disk
from tests.unit.agent.coordinate.election_world import Caller

SOURCE = inspect.getsource(election)


def altered(*changes: tuple[str, str]) -> type[Election]:
    """The election with these texts in place of others, each of which it has once."""
    text = SOURCE
    for before, after in changes:
        assert text.count(before) == 1, (text.count(before), before)
        text = text.replace(before, after)
    module = ModuleType(election.__name__)
    module.__package__ = election.__package__
    exec(compile(text, "election.py, altered", "exec"), vars(module))
    return cast("type[Election]", module.Election)


class ForgetsItsBallot(Voter):
    def begin(self, now: float, random: Callable[[], float], kind: type[Election] = Election) -> None:
        self.disk = self.disk._replace(ballot=first_disk(self.voters[0]).ballot)
        super().begin(now, random, kind)


class SendsOrdersAtOnce(Voter):
    """Before a majority holds the memo."""

    def _publish(self, memo: tuple[str, ...], now: float) -> None:
        super()._publish(memo, now)
        self.held = [((0, 0), memo) for _, memo in self.held]


class PublishesNothingAtFirst(Voter):
    """A new coordinator counts on the memo of an older term."""

    def _coordinate(self, now: float) -> list[tuple[str, Any]]:
        if self.coordinated != self.election.ballot["term"]:
            self.coordinated, self.held, self.last_sent = self.election.ballot["term"], [], ()
            self.witness.sees_election(self.process, self.coordinated, self.disk.memo)
            self.held.append((self.disk.version, self.disk.memo))
        return super()._coordinate(now)


IS_BOUND = 'is_bound = now < self._promised_until and self.ballot["coordinator"] not in (None, host)'
HEARS = "self.hear(host, (term, host, True), now)"
STEPS_DOWN = "        self._leads, self._granted = False, None"
GRANTED = 'if not self._leads or claim_in(granted) != (self.ballot["term"], self.own, True):'


class Bug(NamedTuple):
    """`seed`: one that finds it, unless the election has changed; then others do."""

    seed: int
    caller: Caller


BUGS: dict[str, Bug] = {
    "term and vote are not on the disk": Bug(188, Caller(voter=ForgetsItsBallot)),
    "what is written is not synced, and a reboot loses it": Bug(287, Caller(syncs=False)),
    "the clock is read before the message": Bug(648, Caller(reads_clock_last=False)),
    "orders go out before a majority holds the memo": Bug(8, Caller(voter=SendsOrdersAtOnce)),
    "a vote while the lease of the coordinator holds": Bug(4, Caller(altered((IS_BOUND, "is_bound = False")))),
    "a promise is forgotten at a restart": Bug(
        1505,
        Caller(
            altered(("self._promised_until = now + PROMISE_S  # promises", "self._promised_until = now  # promises"))
        ),
    ),
    "a promise as short as a lease": Bug(4, Caller(altered(("PROMISE_S = 10.0", "PROMISE_S = 7.0")))),
    "votes for a candidate with an older memo": Bug(77, Caller(altered((" or memo < self.memo:", ":")))),
    "two votes in a term": Bug(362, Caller(altered(('and self.ballot["voted"] == host)', "and True)")))),
    "a minority commits": Bug(8, Caller(altered(("version = held[self._majority - 1]", "version = held[0]")))),
    "a minority elects": Bug(
        3, Caller(altered(("len(self._granted) < self._majority", "len(self._granted) < self._majority - 1")))
    ),
    "the lease counts from the answer": Bug(
        383,
        Caller(altered(("self._leases[host] = max(asked, self._leases.get(host, asked))", "self._leases[host] = now"))),
    ),
    "the coordinator votes for another and still leads": Bug(
        5,
        Caller(
            altered(
                (STEPS_DOWN, STEPS_DOWN.replace("self._leads, self._granted = False, None", "self._granted = None"))
            )
        ),
    ),
    "answers to an older term count": Bug(175, Caller(altered((GRANTED, "if not self._leads:")))),
    "a restarted coordinator goes on in its term": Bug(
        0, Caller(altered(("            if begins:\n", "            if True:\n")))
    ),
    "no trial before the vote": Bug(
        2,
        Caller(
            altered(
                ("self._canvass(self._next_term(now), now, trial=True)", "self._run(self._next_term(now), now)"),
            )
        ),
    ),
    "a voter that has wanted to be elected is never followed up": Bug(
        2203, Caller(altered(("self._repeats.use(host, now):", "False:")))
    ),
    "a coordinator without lease asks for leases for ever": Bug(
        6, Caller(altered(("(ASKS_S + SILENT_S) > ASKS_S", "ASKS_S > ASKS_S")))
    ),
    "orders bind as leases do": Bug(
        6, Caller(altered((HEARS, f"self._promised_until = now + PROMISE_S\n        {HEARS}")))
    ),
    "a candidate is given up after its first try": Bug(
        4,
        Caller(
            altered(("self._stand_at = now + (LEASE_EVERY_S if", "self._stand_at = float('inf') + (LEASE_EVERY_S if"))
        ),
    ),
    "a new coordinator counts on an older term's memo": Bug(
        8077,
        Caller(
            altered(('return version if version[0] == self.ballot["term"] else (0, 0)', "return version")),
            PublishesNothingAtFirst,
        ),
    ),
}

CONFIRMS = "elected = self._claims.elected()"
COUNTS = "seen = self._claims.seen()\n        if now >= self._stuck_at:"

LIARS_BUGS: dict[str, Bug] = {
    "the word of one voter elects a coordinator": Bug(
        0, Caller(altered((CONFIRMS, "elected = (claim[0], claim[1]) if claim[1] and claim[2] else None")))
    ),
    "one voter's claim raises the term": Bug(
        1, Caller(altered((COUNTS, "seen = max(self._claims.terms())\n        if False:")))
    ),
    "any voter may be elected in any term": Bug(
        1, Caller(altered(("is_near = term <= self._farthest(now)", "is_near = True")))
    ),
    "a voter that always claims a newer term has the coordinator elected each time": Bug(
        0, Caller(altered(("self._repeats.use(host, now):", "True:")))
    ),
    "votes in vain have no limit": Bug(
        15, Caller(altered(("and self._vain_votes.allows(host, now)", ""), ("now >= self._vote_at ", "True ")))
    ),
}
"""Those that only liars make use of."""
