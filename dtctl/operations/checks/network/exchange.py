"""Whose network holds the others up: hosts exchange data in pairs, in rounds that part a slow one from its partners.

In some rounds every host meets another one each time, and counts as fast as with the best of its partners. Who was slow
with all of them then meets those that were not, while no other host sends. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from statistics import median

from dtctl.agent.records.network import Measured
from dtctl.dataclass import dataclass
from dtctl.operations.checks import speed

ROUNDS = 3
"""Of all hosts."""
MORE = 3
"""Of those that were slow in all rounds, as long as there are some."""
LATE = 3.0
LATE_S = 0.002
"""An answer takes so many times as long as usual, and so much longer."""

Pair = tuple[str, str]

Round = Mapping[Pair, Measured]
"""By source and target; what was not measured is left out."""


@dataclass(frozen=True)
class Pace:
    """What a host has come to, with the best of its partners each. In bytes a second."""

    sends: float
    receives: float
    latency_s: float
    again: float
    """The greatest share of packets that it had to send twice."""


@dataclass(frozen=True)
class Behind:
    """A host that is slow with every partner: its own figures, and the median of the others'."""

    host: str
    own: Pace
    usual: Pace
    least: Pace
    """What sends or receives less than this is an outlier."""

    @property
    def sends_slowly(self) -> bool:
        return self.own.sends < self.least.sends

    @property
    def receives_slowly(self) -> bool:
        return self.own.receives < self.least.receives

    @property
    def answers_late(self) -> bool:
        return self.own.latency_s > max(LATE * self.usual.latency_s, self.usual.latency_s + LATE_S)

    def __bool__(self) -> bool:
        return self.sends_slowly or self.receives_slowly or self.answers_late


def next_round(hosts: Sequence[str], rounds: Sequence[Round]) -> tuple[Pair, ...]:
    """The pairs that exchange data now; none: it is over."""
    meetings = len(hosts) - 1 + len(hosts) % 2
    several = min(ROUNDS, meetings)
    if len(rounds) < several:
        return meeting(hosts, len(rounds) * meetings // several)
    return _once_more(rounds, several) if len(rounds) < several + MORE else ()


def meeting(hosts: Sequence[str], number: int) -> tuple[Pair, ...]:
    """Of a tournament in which each meets each once; of an odd number one rests each time."""
    first, *others = [*hosts, ""] if len(hosts) % 2 else hosts
    seats = [first, *others[number:], *others[:number]]
    half = len(seats) // 2
    pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
    return tuple((one, other) if number % 2 else (other, one) for one, other in pairs if one and other)


def _once_more(rounds: Sequence[Round], several: int) -> tuple[Pair, ...]:
    """Each slow host with a fast one, and with one that it has not met where there is such a one."""
    met = {frozenset(pair) for each in rounds for pair in each}
    again = [host for each in rounds[several:] for pair in each for host in pair]
    slow = sorted((behind.host for behind in judged(rounds)), key=again.count)
    fast = [host for host in paces(rounds) if host not in slow]
    pairs = []
    for host in slow[: len(fast)]:
        partner = next((one for one in fast if frozenset((host, one)) not in met), fast[0])
        fast.remove(partner)
        # the other end measures the next time
        pairs.append((host, partner) if (len(rounds) - several) % 2 == 0 else (partner, host))
    return tuple(pairs)


def paces(rounds: Iterable[Round]) -> dict[str, Pace]:
    """Of each host that has exchanged anything."""
    found: dict[str, Pace] = {}
    for each in rounds:
        for (source, target), one in each.items():
            sent, received, latency = one["sent"] or 0.0, one["received"] or 0.0, one["latency_s"] or 0.0
            found[source] = _better(found.get(source), Pace(sent, received, latency, one["again"] or 0.0))
            found[target] = _better(found.get(target), Pace(received, sent, latency, 0.0))
    return found


def _better(one: Pace | None, other: Pace) -> Pace:
    if one is None:
        return other
    return Pace(
        max(one.sends, other.sends),
        max(one.receives, other.receives),
        min(one.latency_s, other.latency_s),
        max(one.again, other.again),
    )


def judged(rounds: Iterable[Round]) -> list[Behind]:
    """Against the middle of the others: who is slow is not to pull it down."""
    every = paces(rounds)
    found = []
    for host, own in every.items():
        others = [pace for other, pace in every.items() if other != host]
        if others:
            columns = list(zip(*map(astuple, others), strict=True))
            found.append(Behind(host, own, Pace(*map(median, columns)), Pace(*map(speed.least_usual, columns))))
    return [behind for behind in found if behind]
