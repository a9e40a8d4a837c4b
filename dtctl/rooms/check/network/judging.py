"""Explains failed connections: first by names and addresses, then by the matrix of all hosts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from dtctl.dataclass import dataclass
from dtctl.model import grouped
from dtctl.rooms.check.network import Attempt, Cause, View, is_loopback

MOST_ALIKE = 3
"""The most causes of one kind that are shown one by one."""

Rest = list[Attempt]
"""Failed attempts that no cause explains yet."""


def causes_in(view: View) -> tuple[Cause, ...]:
    """The causes of all failed attempts; each attempt is explained by one of them."""
    rest = [attempt for attempt in view.attempts if attempt.hindrance]
    found = [*_taken(view), *_tried(view), *_own_names(view)]
    for explain in (_unresolved, _loopback, _wrong_addresses, _other_hosts, _half_open):
        causes, rest = explain(view, rest)
        found += causes
    found += matrix_causes(view.attempts, rest)
    return tuple(_few(found))


def _few(causes: list[Cause]) -> Iterator[Cause]:
    """The first causes of each kind, and the hosts of the rest."""
    for kind, same in grouped((cause.kind, cause) for cause in causes).items():
        yield from same[:MOST_ALIKE]
        if rest := same[MOST_ALIKE:]:
            hosts = tuple(dict.fromkeys(host for cause in rest for host in cause.hosts))
            others = tuple(dict.fromkeys(host for cause in rest for host in cause.others))
            yield Cause("more_alike", hosts, others, {"of": kind, "count": len(rest)})


def _taken(view: View) -> Iterator[Cause]:
    """One cause per live run of the user, with all its ports; one per other port, with its holder on the first host."""
    every = [
        (host, bound) for host, bound_ports in view.bound.items() for bound in bound_ports if bound["state"] == "taken"
    ]
    for run, of_run in grouped((bound["run"], (host, bound)) for host, bound in every if bound["run"]).items():
        hosts = tuple(dict.fromkeys(host for host, _ in of_run))
        fields: dict[str, object] = {
            "ports": tuple(sorted({bound["port"] or 0 for _, bound in of_run})),
            "whose": tuple(dict.fromkeys(bound["whose"] for _, bound in of_run)),
            "run": run,
            "cluster": of_run[0][1]["cluster"],
        }
        yield Cause("ports_of_own_run", hosts, fields=fields)
    taken = grouped((bound["port"], (host, bound)) for host, bound in every if not bound["run"])
    for port, on in ((port, dict(pairs)) for port, pairs in taken.items()):
        first, bound = next(iter(on.items()))
        about = {"port": port, "whose": tuple(one["whose"] for one in on.values()), "holder": bound["holder"]}
        yield Cause("port_taken", tuple(on), fields=about | ({"on": first} if len(on) > 1 else {}))


def _tried(view: View) -> Iterator[Cause]:
    """Ports that another check is trying at the same time."""
    hosts = {
        host: {bound["port"] or 0 for bound in bound_ports if bound["state"] == "tried"}
        for host, bound_ports in view.bound.items()
    }
    on = tuple(host for host, ports in hosts.items() if ports)
    if on:
        yield Cause("tried_by_another", on, fields={"ports": tuple(sorted(set().union(*hosts.values())))})


def _own_names(view: View) -> Iterator[Cause]:
    """Host names that resolve to a loopback address: harmless to TensorFlow, which listens on every address; gloo and
    others send the address to their peers.
    """
    found: dict[str, dict[str, str]] = {}
    for host, names in view.resolved.items():
        for named in names:
            looped = [address for address in named["addresses"] if is_loopback(address)]
            if looped and looped == named["addresses"] and not is_loopback(named["name"]):
                found.setdefault(looped[0], {})[host] = named["name"]
    for address, on in found.items():
        name = {"name": next(iter(on.values()))} if len(on) == 1 else {}
        yield Cause("own_loopback", tuple(on), fields={"address": address, **name})


def _unresolved(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    named = [attempt for attempt in rest if attempt.hindrance == "unresolved"]
    causes = [
        Cause("unresolved", sources(group), (group[0].target,), _named(group[0], text=group[0].text))
        for group in _alike(named, lambda attempt: (attempt.target, attempt.endpoint.name))
    ]
    return causes, _without(rest, named)


def _loopback(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    looped = [attempt for attempt in rest if is_loopback(attempt.at)]
    causes = [
        Cause(
            "literal_loopback" if is_loopback(group[0].endpoint.name) else "loopback_name",
            sources(group),
            (group[0].target,),
            _named(group[0], address=group[0].at, has=tuple(sorted(view.addresses(group[0].target)))),
        )
        for group in _alike(looped, lambda attempt: (attempt.target, attempt.endpoint.name, attempt.at))
    ]
    return causes, _without(rest, looped)


def _wrong_addresses(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    """Names that resolve to an address which their host does not have. (An address that is reached may be
    translated.)
    """
    reached = {(attempt.target, attempt.at) for attempt in view.attempts if not attempt.hindrance}
    wrong = [
        attempt
        for attempt in rest
        if (own := view.addresses(attempt.target))
        and attempt.at not in own
        and (attempt.target, attempt.at) not in reached
    ]
    causes = []
    for group in _alike(wrong, lambda attempt: (attempt.target, attempt.endpoint.name, attempt.at)):
        first = group[0]
        others = {
            one.at for one in view.attempts if one.target == first.target and one.endpoint.name == first.endpoint.name
        }
        usual = sorted((others - {first.at}) & view.addresses(first.target))
        fields = _named(first, address=first.at, has=tuple(sorted(view.addresses(first.target))))
        if usual:
            fields |= {"usual": usual[0]}
            causes.append(Cause("other_address", sources(group), (first.target,), fields))
        else:
            causes.append(Cause("wrong_interface", (first.target,), sources(group), fields))
    return causes, _without(rest, wrong)


def _other_hosts(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    """Addresses that are right but at which another host or program answers."""
    answered = [attempt for attempt in rest if attempt.hindrance in ("other_host", "stranger")]
    causes = []
    for group in _alike(answered, lambda attempt: (attempt.target, attempt.at, attempt.hindrance, attempt.by)):
        first = group[0]
        fields = _named(first, address=first.at, ports=_ports(group)) | ({"by": first.by} if first.by else {})
        causes.append(Cause(first.hindrance, (first.target,), sources(group), fields))
    return causes, _without(rest, answered)


def _half_open(view: View, rest: Rest) -> tuple[list[Cause], Rest]:
    """Pairs whose connections open but carry no data."""
    half = [attempt for attempt in rest if attempt.hindrance in ("cut_off", "silent")]
    causes = []
    for group in _alike(half, lambda attempt: (attempt.hindrance,)):
        kind = "large_packets" if group[0].hindrance == "cut_off" else "silent"
        fields = {"from_hosts": sources(group), "ports": _ports(group)}
        causes.append(Cause(kind, targets(group), sources(group), fields))
    return causes, _without(rest, half)


def _alike(attempts: Iterable[Attempt], key: Callable[[Attempt], object]) -> Iterable[Rest]:
    return grouped((key(attempt), attempt) for attempt in attempts).values()


def sources(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(attempt.source for attempt in attempts))


def targets(attempts: Iterable[Attempt]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(attempt.target for attempt in attempts))


def _ports(attempts: Iterable[Attempt]) -> tuple[int, ...]:
    return tuple(sorted({attempt.endpoint.port for attempt in attempts}))


def _named(attempt: Attempt, **fields: object) -> dict[str, object]:
    return {"name": attempt.endpoint.name, **fields}


def _without(rest: Rest, explained: Rest) -> Rest:
    gone = set(map(id, explained))
    return [attempt for attempt in rest if id(attempt) not in gone]


Direction = Literal["in", "out"]

MOST_PAIRS = 6
"""The most pairs that are shown one by one; more of them have a cause that no pair shows."""


@dataclass(frozen=True)
class _Whole:
    """A host that no other reaches (in), or that reaches no other (out), at these ports."""

    host: str
    direction: Direction
    ports: tuple[int, ...]
    limited: bool
    covers: frozenset[Attempt]


def matrix_causes(tried: Sequence[Attempt], failed: Sequence[Attempt]) -> list[Cause]:
    """The causes that the matrix of hosts shows; each failed attempt is explained by one of them."""
    if not failed:
        return []
    lost = set(failed)
    attempts = [one for one in tried if not one.hindrance or one in lost]
    if len(lost) == len(attempts) and _both_ways(failed):
        hosts = tuple(dict.fromkeys(host for one in failed for host in one.pair))
        return [Cause("nobody", hosts, fields=_how(failed))]
    found, rest = _partition(attempts, lost)
    wholes, rest = _cover(attempts, rest)
    return [*found, *_causes(wholes), *_pairs(rest, attempts)]


def _both_ways(failed: Sequence[Attempt]) -> bool:
    """Whether attempts fail from several hosts and to several, so that no single host's rule explains them."""
    return len({one.source for one in failed}) > 1 and len({one.target for one in failed}) > 1


def _partition(attempts: Sequence[Attempt], failed: set[Attempt]) -> tuple[list[Cause], set[Attempt]]:
    """Groups of two or more hosts between which nothing arrives in either direction."""
    hosts = dict.fromkeys(host for attempt in attempts for host in attempt.pair)
    group = {host: host for host in hosts}

    def root(host: str) -> str:
        while group[host] != host:
            host = group[host]
        return host

    for attempt in attempts:
        if attempt not in failed:
            group[root(attempt.source)] = root(attempt.target)
    groups = grouped((root(host), host) for host in hosts)
    across = {one for one in failed if root(one.source) != root(one.target)}
    if not across or min(map(len, groups.values())) < 2:
        return [], failed
    *parts, _ = sorted(groups.values(), key=len)
    found = [
        Cause("partition", tuple(part), tuple(host for host in hosts if host not in part), _how(across))
        for part in parts
    ]
    return found, failed - across


def _cover(attempts: Sequence[Attempt], failed: set[Attempt]) -> tuple[list[_Whole], set[Attempt]]:
    """The fewest hosts whose rows and columns fail completely; a failure that two of them explain equally well is
    left.
    """
    wholes = _wholes(attempts, failed)
    chosen: list[_Whole] = []
    rest = set(failed)
    while True:
        best = max(wholes, key=lambda one: (len(one.covers & rest), one.direction == "in"), default=None)
        if best is None or not best.covers & rest:
            return chosen, rest
        wholes.remove(best)
        rivals = [one for one in wholes if one.covers & rest == best.covers & rest and one.host != best.host]
        if rivals:  # a firewall on either of two hosts would look the same
            for rival in rivals:
                wholes.remove(rival)
            continue
        chosen.append(best)
        rest -= best.covers


def _wholes(attempts: Sequence[Attempt], failed: set[Attempt]) -> list[_Whole]:
    lines: dict[tuple[str, Direction], dict[int, list[Attempt]]] = {}
    for attempt in attempts:
        lines.setdefault((attempt.target, "in"), {}).setdefault(attempt.endpoint.port, []).append(attempt)
        lines.setdefault((attempt.source, "out"), {}).setdefault(attempt.endpoint.port, []).append(attempt)
    wholes = []
    for (host, direction), by_port in lines.items():
        ports = [port for port, line in by_port.items() if all(one in failed for one in line)]
        limited = len(ports) < len(by_port)
        covers = frozenset(one for port in ports for one in by_port[port])
        # one failed connection to a port that only one host has does not show which side is at fault
        if ports and (not limited or len({cover.pair for cover in covers}) > 1):
            wholes.append(_Whole(host, direction, tuple(sorted(ports)), limited, covers))
    return wholes


def _causes(wholes: Iterable[_Whole]) -> list[Cause]:
    """One cause for a host that is cut off in both directions; hosts with the same fault are shown together."""
    by_host: dict[str, dict[Direction, _Whole]] = {}
    for whole in wholes:
        by_host.setdefault(whole.host, {})[whole.direction] = whole
    same: dict[tuple[str, tuple[int, ...], bool, tuple[tuple[str, str], ...]], list[_Whole]] = {}
    for ways in by_host.values():
        both = len(ways) == 2 and not any(whole.limited for whole in ways.values())
        for direction, whole in ways.items():
            if both and direction == "out":
                continue
            kind = "cut_off" if both else f"firewall_{direction}"
            ports = whole.ports if whole.limited or kind == "firewall_in" else ()
            same.setdefault((kind, ports, whole.limited, tuple(_how(whole.covers).items())), []).append(whole)
    causes = []
    for (kind, ports, limited, how), group in same.items():
        hosts = tuple(dict.fromkeys(whole.host for whole in group))
        ends = (cover for whole in group for cover in whole.covers)
        others = dict.fromkeys(end.target if kind == "firewall_out" else end.source for end in sorted(ends, key=_key))
        fields = {"limited": limited, **dict(how), **({"ports": ports} if ports else {})}
        causes.append(Cause(kind, hosts, tuple(host for host in others if host not in hosts), fields))
    return causes


def _pairs(rest: set[Attempt], attempts: Sequence[Attempt]) -> list[Cause]:
    """Causes for pairs of hosts that no single host explains, in one direction or both."""
    broken = {one.pair for one in rest}
    whole = {attempt.pair for attempt in attempts} - broken
    if len({frozenset(pair) for pair in broken}) > MOST_PAIRS:
        found = sorted(rest, key=_key)
        hosts, others = (tuple(dict.fromkeys(one.pair[end] for one in found)) for end in (1, 0))
        return [Cause("scattered", hosts, others, {"failed": len(rest), "tried": len(attempts), **_how(rest)})]
    groups = grouped(
        ((one.target, back), one)
        for one in sorted(rest, key=_key)
        for back in [one.pair[::-1] in whole]
        if back or one.source < one.target or one.pair[::-1] not in broken  # else shown with the other direction
    )
    return [
        Cause(
            "one_way" if back else "pair",
            (target,),
            tuple(dict.fromkeys(one.source for one in group)),
            {"ports": tuple(sorted({one.endpoint.port for one in group})), **_how(group)},
        )
        for (target, back), group in groups.items()
    ]


def _how(failed: Iterable[Attempt]) -> dict[str, str]:
    """drop: nothing came back; reject: the connection was refused, and `text` is the system's error."""
    words = {one.hindrance: one.text for one in sorted(failed, key=_key)}
    refusals = {kind: text for kind, text in words.items() if kind != "timeout"}
    if not refusals:
        return {"mode": "drop"}
    mode = "reject" if "timeout" not in words else "mixed"
    return {"mode": mode, "text": next(iter(refusals.values()))}


def _key(one: Attempt) -> tuple[str, str, int, str]:
    return one.source, one.target, one.endpoint.port, one.endpoint.whose
