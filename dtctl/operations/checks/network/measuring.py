"""The rounds in which hosts measure what they can exchange, and the findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.network import Link, Measured, NetworkFacts, NetworkQuestion
from dtctl.config.strategies import PS
from dtctl.model import grouped
from dtctl.operations.checks import Answers, CheckContext, Line, Statement, found
from dtctl.operations.checks.network import Endpoint, exchange
from dtctl.operations.checks.network.exchange import Behind, Pair, least_step_s, rounds, summed
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


def _pairs(context: CheckContext, heard: Answers[Facts], since: int) -> Sequence[Pair]:
    number, planned = len(heard.rounds) - since, _between_tasks(context, heard)
    if number < len(planned):
        return planned[number]
    hosts = [host for host in context.plan.hosts if host in heard.first]
    if not context.deep or len(hosts) < 2 or all(context.host(host).is_local for host in hosts):
        return ()
    return exchange.next_round(hosts, _exchanged(context, heard, since))


def _between_tasks(context: CheckContext, heard: Answers[Facts]) -> tuple[tuple[Pair, ...], ...]:
    """Of workers and ps; of all hosts where there are no ps."""
    if not context.network_speed:
        return ()
    hosts = [host for host in context.plan.hosts if host in heard.first]
    serving = [host for host in hosts if any(task.id.job == PS for task in context.plan.on_host(host))]
    working = [host for host in hosts if any(task.id.job != PS for task in context.plan.on_host(host))]
    # who listens nowhere for this check cannot be measured, and does not end the measuring of others
    targets = [host for host in serving or hosts if any(one["state"] == "bound" for one in heard.first[host]["bound"])]
    return rounds(working if serving else hosts, targets)


def _exchanged(context: CheckContext, heard: Answers[Facts], since: int) -> list[exchange.Round]:
    first = since + len(_between_tasks(context, heard))
    return [_measured(context, answers) for answers in heard.rounds[first:]]


def _measured(context: CheckContext, answers: Mapping[str, Facts]) -> dict[Pair, Measured]:
    """Reports about hosts that are not in the plan are ignored."""
    return {
        (host, one["host"]): one
        for host, facts in answers.items()
        for one in facts["measured"]
        if not one["problem"] and one["host"] in context.hosts
    }


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
    exchanged = _exchanged(context, heard, since) if context.deep else []
    paces = exchange.paces(exchanged)
    if context.deep and not exchanged and _pairs(context, heard, since):
        yield Statement("not_exchanged")  # no host listens for this check
    if paces:
        yield Line("sends a second_bytes", {host: pace.sends for host, pace in paces.items()})
        yield Line("receives a second_bytes", {host: pace.receives for host, pace in paces.items()})
    planned = _between_tasks(context, heard)
    yield from _told_speed(context, heard, heard.rounds[since : since + len(planned)])


def _told_speed(
    context: CheckContext, heard: Answers[Facts], answers: Iterable[Mapping[str, Facts]]
) -> Iterator[Statement]:
    speed = summed({pair: one for each in answers for pair, one in _measured(context, each).items()})
    if speed is None:
        return
    fields = {
        "pairs": speed.pairs,
        "latency_ms": _ms(speed.latency_s),
        "rate_bytes": speed.bytes_s,
        "slowest": " to ".join(speed.slowest),
        "slowest_bytes": speed.slowest_bytes_s,
        "farthest": " to ".join(speed.farthest),
        "farthest_ms": _ms(speed.farthest_s),
    }
    yield Statement("speed", fields)
    serving = sum(task.id.job == PS for task in context.plan.tasks)
    variables = _variables_bytes(heard)
    moved = variables / max(1, serving) if variables else 1e6
    fields = {"moved_bytes": moved, "least_ms": _ms(least_step_s(speed, moved))}
    yield Statement(("step_to_ps" if serving else "step_to_peers") if variables else "step_by_size", fields)


def _variables_bytes(heard: Answers[Facts]) -> float | None:
    """Of the newest complete checkpoint, as the topic of storage has found it; None: there is none."""
    answer = heard.others.get("storage", ())
    sizes = [one["size_bytes"] for answers in answer for facts in answers.values() for one in facts["checkpoints"]]
    return max(sizes, default=None) or None
