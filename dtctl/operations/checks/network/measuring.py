"""The rounds in which hosts measure what they can exchange, and the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.network import Link, NetworkFacts, NetworkQuestion
from dtctl.model import grouped
from dtctl.operations.checks import Answers, CheckContext, Line, Statement, found
from dtctl.operations.checks.network import Endpoint, exchange
from dtctl.operations.checks.network.exchange import Behind, Pair
from dtctl.operations.diagnosis import Finding

Facts = NetworkFacts


def ask(
    context: CheckContext, heard: Answers[Facts], doors: Iterable[Endpoint], since: int
) -> Mapping[str, NetworkQuestion]:
    """`doors`: where hosts listen for this check; `since`: the round with which measuring begins."""
    listening = {door.host: door for door in doors}
    questions = {}
    for source, target in _pairs(context, heard, since):
        if target not in listening:
            source, target = target, source
        if target in listening:
            door = listening[target]
            peer = {"whose": door.whose, "host": target, "address": door.address}
            questions[source] = made(NetworkQuestion, nonce=context.nonce, host=source, measure=[peer])
    return questions


def _pairs(context: CheckContext, heard: Answers[Facts], since: int) -> tuple[Pair, ...]:
    hosts = [host for host in context.plan.hosts if host in heard.first]
    if not context.deep or len(hosts) < 2 or all(context.host(host).is_local for host in hosts):
        return ()
    return exchange.next_round(hosts, _exchanged(context, heard, since))


def _exchanged(context: CheckContext, heard: Answers[Facts], since: int) -> list[exchange.Round]:
    """Reports about hosts that are not in the plan are ignored."""
    return [
        {
            (host, one["host"]): one
            for host, facts in answers.items()
            for one in facts["measured"]
            if not one["problem"] and one["host"] in context.hosts
        }
        for answers in heard.rounds[since:]
    ]


def judge(context: CheckContext, heard: Answers[Facts], since: int) -> Iterator[Finding]:
    if not context.deep:
        return
    exchanged = _exchanged(context, heard, since)
    for behind in exchange.judged(exchanged):
        yield found("host_exchanges_slowly", [behind.host], **_figures(behind), **_different(behind, heard))
    known = exchange.paces(exchanged)
    failed = grouped(
        (text, host)
        for pair, text in _failures(heard, since)
        for host in pair
        if host in context.hosts and host not in known and host not in heard.errors
    )
    for text, hosts in failed.items():
        yield found("exchange_failed", dict.fromkeys(hosts), said=text)


def _failures(heard: Answers[Facts], since: int) -> Iterator[tuple[Pair, str]]:
    for answers in heard.rounds[since:]:
        for host, facts in answers.items():
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


def _different(behind: Behind, heard: Answers[Facts]) -> dict[str, Any]:
    """Its link beside those of the others, where they have something in common."""
    links = _links(heard)
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


def _links(heard: Answers[Facts]) -> dict[str, tuple[str, Link]]:
    """By host: the interface at whose address the others have reached it, or its only one."""
    reached = {(one["host"], one["place"]) for facts in heard.round(1).values() for one in facts["reached"]}
    links = {}
    for host, facts in heard.first.items():
        every = [
            (one["name"], one["address"], link) for one in facts["interfaces"] if (link := one["link"]) is not None
        ]
        used = [one for one in every if (host, one[1]) in reached]
        if used or len({name for name, _, _ in every}) == 1:
            name, _, link = (used or every)[0]
            links[host] = (name, link)
    return links


def describe(context: CheckContext, heard: Answers[Facts], since: int) -> Iterator[Line | Statement]:
    exchanged = _exchanged(context, heard, since)
    paces = exchange.paces(exchanged)
    if not exchanged and _pairs(context, heard, since):
        yield Statement("not_exchanged")  # no host listens for this check
    if paces:
        yield Line("sends a second_bytes", {host: pace.sends for host, pace in paces.items()})
        yield Line("receives a second_bytes", {host: pace.receives for host, pace in paces.items()})
