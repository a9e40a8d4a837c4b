"""Tests, before a run needs the ports, whether the tasks of a plan will reach each other, and who else will reach them.

Round 0: each host listens on the ports of its tasks. Round 1: it connects to those of the others, at the addresses
that the tasks are given; meanwhile this machine tries them as well. Where a task of the live run was not reached, its
host is asked once more whether it listens: the run may have ended meanwhile. Further rounds measure, where that is
asked for (measuring.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.network.records import NetworkFacts, NetworkQuestion
from dtctl.config.strategies import PS
from dtctl.dataclass import dataclass
from dtctl.model import CHOSEN_PORT, grouped
from dtctl.operations.findings import Finding
from dtctl.operations.up.conflicts import COORDINATOR, takes_others
from dtctl.rooms.check import Answers, CheckContext, Line, Statement, Topic, found
from dtctl.rooms.check.network import (
    Attempt,
    Cause,
    Endpoint,
    View,
    addresses_of,
    endpoints_of,
    exposure,
    measuring,
    open_endpoints,
    tells_its_address,
)
from dtctl.rooms.check.network.judging import causes_in

Facts = NetworkFacts

LIMIT_S = 3.5
"""A lost packet is sent again after 1 s and after 3 s."""
BRIEF_S = 1.5


def network_questions(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, NetworkQuestion]:
    number = len(answers.rounds)
    if context.brief and all(context.host(host).is_local for host in context.hosts):
        return {}
    if number == 0:
        own = grouped((endpoint.host, endpoint) for endpoint in endpoints_of(context.plan))
        return {host: _first_question(context, host, own.get(host, ())) for host in context.hosts}
    if number == 1:
        return _reaching(context, answers)
    again = {host: _listening(context, host, endpoints) for host, endpoints in _doubted(context, answers).items()}
    if again and number == 2:
        return again
    doors = [endpoint for endpoint, live in _open_endpoints(context, answers).items() if not live]
    return measuring.exchange_questions(context, answers, doors, _measured_since(context, answers))


def _first_question(context: CheckContext, host: str, own: Sequence[Endpoint]) -> NetworkQuestion:
    several = len(context.hosts) > 1
    names = list(dict.fromkeys(endpoint.name for endpoint in own))
    return _listening(context, host, own if several or not context.brief else (), names)


def _listening(
    context: CheckContext, host: str, endpoints: Iterable[Endpoint], names: Iterable[str] = ()
) -> NetworkQuestion:
    return made(
        NetworkQuestion,
        nonce=context.nonce,
        cluster=context.plan.cluster.name,
        host=host,
        listen=[{"whose": endpoint.whose, "port": endpoint.port} for endpoint in endpoints],
        names=list(names),
    )


def _reaching(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, NetworkQuestion]:
    live = _open_endpoints(context, answers)
    asked = {}
    for host, endpoints in _coverage(context, answers).tries.items():
        peers = [{"whose": one.whose, "host": one.host, "address": one.address, "live": live[one]} for one in endpoints]
        if peers:
            asked[host] = made(NetworkQuestion, nonce=context.nonce, host=host, reach=peers, limit_s=_limit_s(context))
    return asked


def _doubted(context: CheckContext, answers: Answers[Facts]) -> dict[str, list[Endpoint]]:
    """Endpoints of the live run, by host, that some host did not reach."""
    missed = {
        (one["host"], one["whose"])
        for facts in answers.rounds[1].values()
        for one in facts["reached"]
        if one["problem"]
    }
    return grouped(
        (endpoint.host, endpoint)
        for endpoint, live in _open_endpoints(context, answers).items()
        if live and (endpoint.host, endpoint.whose) in missed
    )


def _measured_since(context: CheckContext, answers: Answers[Facts]) -> int:
    """The first round that measures."""
    return 3 if len(answers.rounds) > 1 and _doubted(context, answers) else 2


def _is_gone(endpoint: Endpoint, answers: Answers[Facts]) -> bool:
    """Whether the host, asked again, no longer reports the same listener: a failed connection then proves nothing.

    A task may have ended, or may have been started again meanwhile.
    """
    return len(answers.rounds) < 3 or not _sockets(endpoint, answers.first) & _sockets(endpoint, answers.rounds[2])


def _sockets(endpoint: Endpoint, answer: Mapping[str, Facts]) -> set[int]:
    own = answer[endpoint.host]["bound"] if endpoint.host in answer else ()
    return {
        inode for one in own if (one["whose"], one["state"]) == (endpoint.whose, "live") for inode in one["sockets"]
    }


def _limit_s(context: CheckContext) -> float:
    return BRIEF_S if context.brief else LIMIT_S


def _open_endpoints(context: CheckContext, answers: Answers[Facts]) -> dict[Endpoint, bool]:
    """All endpoints to try; True: a trainer of the live run listens there."""
    found = open_endpoints(context.plan, {host: facts["bound"] for host, facts in answers.first.items()})
    return {endpoint: live for endpoint, live in found.items() if endpoint.serves}


def _coverage(context: CheckContext, answers: Answers[Facts]) -> Coverage:
    endpoints = list(_open_endpoints(context, answers))
    vital = [
        endpoint for endpoint in endpoints if endpoint.whose == COORDINATOR or endpoint.whose.partition(":")[0] == PS
    ]
    hosts = [host for host in context.hosts if host in answers.first]
    return spread(hosts, endpoints, vital, min(MOST, MOST_IN_PASSING * len(hosts)) if context.brief else MOST)


def _view(context: CheckContext, answers: Answers[Facts]) -> View:
    second = answers.round(1)
    doubted = (
        {endpoint for endpoints in _doubted(context, answers).values() for endpoint in endpoints} if second else set()
    )
    gone = {endpoint for endpoint in doubted if _is_gone(endpoint, answers)}
    # the listeners of a host that is not asked, or was lost meanwhile, are unknown
    endpoints = {
        (endpoint.whose, endpoint.host): endpoint
        for endpoint in _open_endpoints(context, answers)
        if endpoint not in gone and endpoint.host in context.hosts and endpoint.host not in answers.errors
    }
    return View(
        {host: facts["bound"] for host, facts in answers.first.items()},
        {host: addresses_of(facts) for host, facts in answers.first.items()},
        {host: facts["resolved"] for host, facts in answers.first.items()},
        tuple(
            Attempt(host, endpoints[one["whose"], one["host"]], one["place"], one["problem"], one["by"], one["text"])
            for host, facts in second.items()
            for one in facts["reached"]
            if (one["whose"], one["host"]) in endpoints and one["host"] != host
        ),
    )


def network_findings(context: CheckContext, answers: Answers[Facts]) -> Iterator[Finding]:
    for cause in causes_in(_view(context, answers)):
        yield _finding(context, cause)
    yield from exposure.exposure_findings(context, answers)
    yield from exposure.proxy_findings(context, answers)
    yield from measuring.exchange_findings(context, answers, _measured_since(context, answers))


def _finding(context: CheckContext, cause: Cause) -> Finding:
    fields = dict(cause.fields)
    kind = cause.kind
    if kind == "own_loopback" and tells_its_address(context.plan.cluster):
        kind = "own_loopback_told"
    if kind == "ports_of_own_run" and not takes_others(context.plan.cluster, fields["whose"]):
        kind = "ports_set_to_those_of_own_run"
    mode = fields.pop("mode", "")
    if mode in ("drop", "mixed"):
        fields["dropped_s"] = _limit_s(context)
    if mode in ("reject", "mixed"):
        fields["rejected"] = fields.pop("text")
    if fields.get("has"):
        fields["first"] = fields["has"][0]
        fields["has"] = ", ".join(fields["has"])
    if cause.others:
        fields |= {"others": cause.others, "from_hosts": cause.others, "other": cause.others[0]}
    if fields.get("address") == fields.get("name") and kind == "wrong_interface":
        fields.pop("address", None)
    if kind == "pair":
        fields["address"] = context.plan.addresses[cause.hosts[0]]
    tasks = [task.id for task in context.plan.tasks if str(task.id) in fields.get("whose", ())]
    return found(kind, _in_order(context, cause.hosts), tasks, **fields)


def _in_order(context: CheckContext, hosts: Iterable[str]) -> list[str]:
    wanted = set(hosts)
    return [host for host in context.hosts if host in wanted]


def network_lines(context: CheckContext, answers: Answers[Facts]) -> Iterator[Line | Statement]:
    if context.brief or len(answers.rounds) < 2:
        return
    attempts = _view(context, answers).attempts
    coverage = _coverage(context, answers)
    if attempts:
        yield Statement(
            "connections" if coverage.is_whole else "connections_sampled",
            {
                "reached": sum(not attempt.hindrance for attempt in attempts),
                "tried": len(attempts),
                "whole": coverage.whole,
                "partners": coverage.partners,
                "hosts": tuple(coverage.tries),
            },
        )
    yield from exposure.exposure_lines(context, answers)
    yield from measuring.exchange_lines(context, answers, _measured_since(context, answers))


assert CHOSEN_PORT == 0  # in a ListenRequest, too, it means a port that the host chooses

TOPIC = Topic("network", network_questions, network_findings, network_lines, exposure.doors)


MOST = 4000
"""The most connections of one check, over all hosts."""
MOST_IN_PASSING = 16
"""The most connections of each host while a run starts: enough to notice a host that is unreachable, or reaches no
other.
"""


@dataclass(frozen=True)
class Coverage:
    """The connections of one check. `tries`: host -> the endpoints of other hosts that it tries."""

    tries: Mapping[str, tuple[Endpoint, ...]]
    count: int
    whole: int
    """The number of connections if every host tried every endpoint."""
    partners: int
    """The least number of hosts that each host tries."""

    @property
    def is_whole(self) -> bool:
        return self.count == self.whole


def spread(
    hosts: Sequence[str], endpoints: Sequence[Endpoint], vital: Sequence[Endpoint] = (), most: int = MOST
) -> Coverage:
    """Distributes the endpoints: every host tries the `vital` ones first, as far as the limit allows.

    Each host tries, and is tried by, as many others; the distances to them are spread evenly, so that the two halves of
    any rack, switch or subnet meet.
    """
    on = grouped((endpoint.host, endpoint) for endpoint in endpoints)
    whole = sum(len(endpoints) - len(on.get(host, ())) for host in hosts)
    if whole <= most:
        tries = {host: tuple(endpoint for endpoint in endpoints if endpoint.host != host) for host in hosts}
        return Coverage(tries, whole, whole, max(0, len(hosts) - 1))
    chosen = {
        host: dict.fromkeys(_of(vital, host, most // (2 * len(hosts)), number)) for number, host in enumerate(hosts)
    }
    left = most - sum(map(len, chosen.values()))
    per_host = len(endpoints) // len(on)
    partners = max(1, min(len(hosts) - 1, left // (len(hosts) * per_host)))
    for number, host in enumerate(hosts):
        for step in distances(len(hosts), partners):
            chosen[host].update(dict.fromkeys(on.get(hosts[(number + step) % len(hosts)], ())))
    answer = {host: tuple(found) for host, found in chosen.items()}
    return Coverage(answer, sum(map(len, answer.values())), whole, partners)


def _of(endpoints: Sequence[Endpoint], host: str, most: int, turn: int) -> list[Endpoint]:
    """At most `most` endpoints of other hosts; each host begins at another place in the list."""
    others = [endpoint for endpoint in endpoints if endpoint.host != host]
    if len(others) <= most:
        return others
    start = turn * most
    return [others[(start + step) % len(others)] for step in range(most)]


def distances(hosts: int, partners: int) -> list[int]:
    """At most `partners` different steps from 1 to hosts - 1, evenly spaced, beginning with 1."""
    return sorted({1 + step * (hosts - 1) // partners for step in range(partners)})
