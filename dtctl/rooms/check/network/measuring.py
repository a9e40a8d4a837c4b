"""Finds hosts whose network slows the others down: they exchange data in pairs, with new partners in each round.

In some rounds every host meets another one each time, and counts as fast as with the best of its partners. Who was slow
with all of them then meets those that were not, while no other host sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from statistics import median
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.network.records import Link, Measured, NetworkFacts, NetworkQuestion
from dtctl.dataclass import dataclass
from dtctl.model import grouped
from dtctl.operations.findings import Finding
from dtctl.rooms.check import Answers, CheckContext, Line, Statement, found, speed
from dtctl.rooms.check.network import Endpoint

Facts = NetworkFacts


def exchange_questions(
    context: CheckContext, answers: Answers[Facts], doors: Iterable[Endpoint], since: int
) -> Mapping[str, NetworkQuestion]:
    """`doors`: the ports where hosts listen for this check; `since`: the first round that measures."""
    listening = {door.host: door for door in doors}
    questions = {}
    for source, target in _pairs(context, answers, since):
        if target not in listening:
            source, target = target, source
        if target in listening:
            door = listening[target]
            peer = {"whose": door.whose, "host": target, "address": door.address}
            questions[source] = made(NetworkQuestion, nonce=context.nonce, host=source, measure=[peer])
    return questions


def _pairs(context: CheckContext, answers: Answers[Facts], since: int) -> tuple[Pair, ...]:
    hosts = [host for host in context.plan.hosts if host in answers.first]
    if not context.deep or len(hosts) < 2 or all(context.host(host).is_local for host in hosts):
        return ()
    return next_round(hosts, _exchanged(context, answers, since))


def _exchanged(context: CheckContext, answers: Answers[Facts], since: int) -> list[Round]:
    """The measurements of one round; reports about hosts that are not in the plan are ignored."""
    return [
        {
            (host, one["host"]): one
            for host, facts in received.items()
            for one in facts["measured"]
            if not one["problem"] and one["host"] in context.hosts
        }
        for received in answers.rounds[since:]
    ]


def exchange_findings(context: CheckContext, answers: Answers[Facts], since: int) -> Iterator[Finding]:
    if not context.deep:
        return
    exchanged = _exchanged(context, answers, since)
    for behind in judged(exchanged):
        yield found("host_exchanges_slowly", [behind.host], **_figures(behind), **_different(behind, answers))
    known = paces(exchanged)
    failed = grouped(
        (text, host)
        for pair, text in _failures(answers, since)
        for host in pair
        if host in context.hosts and host not in known and host not in answers.errors
    )
    for text, hosts in failed.items():
        yield found("exchange_failed", dict.fromkeys(hosts), said=text)


def _failures(answers: Answers[Facts], since: int) -> Iterator[tuple[Pair, str]]:
    for one in answers.rounds[since:]:
        for host, facts in one.items():
            yield from (((host, one["host"]), one["problem"]) for one in facts["measured"] if one["problem"])


def _figures(behind: Behind) -> dict[str, Any]:
    own, usual = behind.own, behind.usual
    answer: dict[str, Any] = {}
    if behind.sends_slowly:
        answer.update(sent_bytes=own.sends, usual_sent_bytes=usual.sends)
    if behind.receives_slowly:
        answer.update(received_bytes=own.receives, usual_received_bytes=usual.receives)
    if behind.answers_late:
        answer.update(latency_ms=_ms(own.latency_s), usual_latency_ms=_ms(usual.latency_s))
    if own.again >= 0.005 and own.again > 2 * usual.again:
        answer["again"] = f"{100 * own.again:.2g} %"
    return answer


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2g}"


def _different(behind: Behind, answers: Answers[Facts]) -> dict[str, Any]:
    """Compares a host's link with those of the others, if they share a property."""
    links = _links(answers)
    answer: dict[str, Any] = {}
    if behind.host not in links:
        return answer
    answer["interface"], own = links.pop(behind.host)
    others = [link for _, link in links.values()]
    for name, of in _SHOWN.items():
        usual = {of(link) for link in others}
        if of(own) and len(usual) == 1 and usual not in ({of(own)}, {""}):
            answer.update({name: of(own), f"usual_{name}": usual.pop()})
    return answer


_SHOWN: Mapping[str, Callable[[Link], str]] = {
    "mbits": lambda link: f"{link['mbits']:,} Mbit/s" if link["mbits"] else "",
    "duplex": lambda link: "half-duplex" if link["half"] else "full-duplex",
    "mtu": lambda link: str(link["mtu"] or ""),
    "queue": lambda link: link["queue"],
}


def _links(answers: Answers[Facts]) -> dict[str, tuple[str, Link]]:
    """The interface of each host at whose address the others reached it, or its only one."""
    reached = {(one["host"], one["place"]) for facts in answers.round(1).values() for one in facts["reached"]}
    links = {}
    for host, facts in answers.first.items():
        every = [
            (one["name"], one["address"], link) for one in facts["interfaces"] if (link := one["link"]) is not None
        ]
        used = [one for one in every if (host, one[1]) in reached]
        if used or len({name for name, _, _ in every}) == 1:
            name, _, link = (used or every)[0]
            links[host] = (name, link)
    return links


def exchange_lines(context: CheckContext, answers: Answers[Facts], since: int) -> Iterator[Line | Statement]:
    exchanged = _exchanged(context, answers, since)
    known = paces(exchanged)
    if not exchanged and _pairs(context, answers, since):
        yield Statement("not_exchanged")  # no host listens for this check
    if known:
        yield Line("sends a second_bytes", {host: pace.sends for host, pace in known.items()})
        yield Line("receives a second_bytes", {host: pace.receives for host, pace in known.items()})


ROUNDS = 3
"""The number of rounds in which all hosts take part."""
MORE = 3
"""The most further rounds for the hosts that were slow in all rounds."""
LATE = 3.0
LATE_S = 0.002
"""An answer that takes this many times as long as usual, and this many seconds longer, is late."""

Pair = tuple[str, str]

Round = Mapping[Pair, Measured]
"""Measurements by source and target; pairs that were not measured are left out."""


@dataclass(frozen=True)
class Pace:
    """The best rates of a host with any partner, in bytes per second."""

    sends: float
    receives: float
    latency_s: float
    again: float
    """The largest share of packets that it had to retransmit."""


@dataclass(frozen=True)
class Behind:
    """A host that is slow with every partner: its own figures, and the median of the others."""

    host: str
    own: Pace
    usual: Pace
    least: Pace
    """A host that sends or receives less than this is an outlier."""

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
    """The pairs that exchange data next; none: measuring is over."""
    meetings = len(hosts) - 1 + len(hosts) % 2
    several = min(ROUNDS, meetings)
    if len(rounds) < several:
        return meeting(hosts, len(rounds) * meetings // several)
    return _once_more(rounds, several) if len(rounds) < several + MORE else ()


def meeting(hosts: Sequence[str], number: int) -> tuple[Pair, ...]:
    """The pairs of one round of a tournament in which every host meets every other once; with an odd number one host
    rests.
    """
    first, *others = [*hosts, ""] if len(hosts) % 2 else hosts
    circle = [first, *others[number:], *others[:number]]
    half = len(circle) // 2
    pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
    return tuple((one, other) if number % 2 else (other, one) for one, other in pairs if one and other)


def _once_more(rounds: Sequence[Round], several: int) -> tuple[Pair, ...]:
    """Pairs of each slow host with a fast one, preferably one that it has not met."""
    met = {frozenset(pair) for each in rounds for pair in each}
    again = [host for each in rounds[several:] for pair in each for host in pair]
    slow = sorted((behind.host for behind in judged(rounds)), key=again.count)
    fast = [host for host in paces(rounds) if host not in slow]
    pairs = []
    for host in slow[: len(fast)]:
        partner = next((one for one in fast if frozenset((host, one)) not in met), fast[0])
        fast.remove(partner)
        # the other end measures in the next round
        pairs.append((host, partner) if (len(rounds) - several) % 2 == 0 else (partner, host))
    return tuple(pairs)


def paces(rounds: Iterable[Round]) -> dict[str, Pace]:
    """The pace of each host that has exchanged data."""
    found: dict[str, Pace] = {}
    for each in rounds:
        for (source, target), one in each.items():
            sent, received, latency = one["sent"] or 0.0, one["received"] or 0.0, one["latency_s"] or 0.0
            found[source] = _better(found.get(source), Pace(sent, received, latency, one["again"] or 0.0))
            found[target] = _better(found.get(target), Pace(received, sent, latency, 0.0))
    return found


def _better(pace: Pace | None, other: Pace) -> Pace:
    if pace is None:
        return other
    return Pace(
        max(pace.sends, other.sends),
        max(pace.receives, other.receives),
        min(pace.latency_s, other.latency_s),
        max(pace.again, other.again),
    )


def judged(rounds: Iterable[Round]) -> list[Behind]:
    """Slow hosts, compared with the median of the other hosts, so that a slow host does not lower it."""
    every = paces(rounds)
    found = []
    for host, own in every.items():
        others = [pace for other, pace in every.items() if other != host]
        if others:
            columns = list(zip(*map(astuple, others), strict=True))
            found.append(Behind(host, own, Pace(*map(median, columns)), Pace(*map(speed.least_usual, columns))))
    return [behind for behind in found if behind]
