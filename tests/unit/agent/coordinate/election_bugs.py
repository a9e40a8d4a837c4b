"""Bugs that an election may have, each put into the real one or into what surrounds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

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


class SendsBeforeItWrites(Voter):
    """The ballot reaches the disk with the next step."""

    def save(self) -> None:
        written = getattr(self, "unwritten", None)
        if written is not None and written.election is self.election:
            self._write(self.disk._replace(ballot=written.ballot))
        self.unwritten: Any = _Unwritten(self.election)


class _Unwritten:
    def __init__(self, election: Election) -> None:
        self.election, self.ballot = election, election.ballot


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
STEPS_DOWN = """\
        if granted and not canvass["trial"]:
            self._leads, self._granted = False, None"""

BUGS: dict[str, Caller] = {
    "term and vote are not on the disk": Caller(voter=ForgetsItsBallot),
    "the ballot reaches the disk after the vote was sent": Caller(voter=SendsBeforeItWrites),
    "what is written is not synced, and a reboot loses it": Caller(syncs=False),
    "the clock is read before the message": Caller(reads_clock_last=False),
    "orders go out before a majority holds the memo": Caller(voter=SendsOrdersAtOnce),
    "a vote while the lease of the coordinator holds": Caller(altered((IS_BOUND, "is_bound = False"))),
    "a promise is forgotten at a restart": Caller(
        altered(("self._promised_until = now + PROMISE_S  # what", "self._promised_until = now  # what"))
    ),
    "a promise as short as a lease": Caller(altered(("PROMISE_S = 10.0", "PROMISE_S = 7.0"))),
    "votes for a candidate with an older memo": Caller(altered((" and memo >= self.memo", ""))),
    "two votes in a term": Caller(altered(('and self.ballot["voted"] == host)', "and True)"))),
    "a minority commits": Caller(altered(("return held[self._majority - 1]", "return held[0]"))),
    "a minority elects": Caller(altered(("len(self._granted) < self._majority", "len(self._granted) < self._majority - 1"))),
    "the lease counts from the answer": Caller(
        altered(("self._leases[host] = max(asked, self._leases.get(host, asked))", "self._leases[host] = now"))
    ),
    "the coordinator votes for another and still leads": Caller(
        altered((STEPS_DOWN, STEPS_DOWN.replace("self._leads, self._granted = False, None", "self._granted = None")))
    ),
    "answers to an older term count": Caller(
        altered(('if not self._leads or granted["term"] != self.ballot["term"]', "if not self._leads"))
    ),
    "a restarted coordinator goes on in its term": Caller(altered(("            if begins:\n", "            if True:\n"))),
    "no trial before the vote": Caller(
        altered(("self._canvass(self._newest_term + 1, now, trial=True)", "self._run(self._newest_term + 1, now)"))
    ),
    "a voter that has wanted to be elected is never followed up": Caller(
        altered(("            self._run(self._newest_term + 1, now)  # or", "            pass  # or"))
    ),
    "a coordinator without lease asks for leases for ever": Caller(
        altered(("return self._leads and self._granted is None", "return self._leads"))
    ),
    "orders bind as leases do": Caller(
        altered(
            (
                'if term < self.ballot["term"] or (term, coordinator) == (self.ballot["term"], self.ballot["coordinator"]):',
                'self._promised_until, self._stand_at = now + PROMISE_S, now + PROMISE_S + SPREAD_S\n        if term < self.ballot["term"]:',
            )
        )
    ),
    "all become candidates at the same time": Caller(altered(("SPREAD_S = 3.0", "SPREAD_S = 0.0"))),
    "a candidate is given up after its first try": Caller(
        altered(("self._stand_at = now + (LEASE_EVERY_S if", "self._stand_at = float('inf') + (LEASE_EVERY_S if"))
    ),
    "a new coordinator counts on an older term's memo": Caller(voter=PublishesNothingAtFirst),
}
