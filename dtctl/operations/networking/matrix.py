"""What a matrix of hosts shows: rows and columns that fail as a whole are the fault of one host. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from dtctl.operations.networking.view import Attempt, Cause

Direction = Literal["in", "out"]

MOST_PAIRS = 6
"""That are told one by one. More of them have a cause that no pair tells."""


@dataclass(frozen=True)
class _Whole:
    """A host that nobody reaches (in), or that reaches nobody (out), at these of its ports; all of them: `limited` is
    false.
    """

    host: str
    direction: Direction
    ports: tuple[int, ...]
    limited: bool
    covers: frozenset[Attempt]


def matrix_causes(tried: Sequence[Attempt], failed: Sequence[Attempt]) -> list[Cause]:
    """Every failed attempt is explained by one of them. What was never tried is nobody's fault."""
    if not failed:
        return []
    lost = set(failed)
    attempts = [one for one in tried if not one.hindrance or one in lost]
    if len(lost) == len(attempts) and _both_ways(failed):
        hosts = tuple(dict.fromkeys(host for one in failed for host in one.pair))
        return [Cause("nobody", hosts, fields=_how(failed))]
    found, rest = _partition(attempts, lost)
    wholes, rest = _cover(attempts, rest)
    return [*found, *_told(wholes), *_pairs(rest, attempts)]


def _both_ways(failed: Sequence[Attempt]) -> bool:
    """From several hosts and to several: so it is not one host's rule alone."""
    return len({one.source for one in failed}) > 1 and len({one.target for one in failed}) > 1


def _partition(attempts: Sequence[Attempt], failed: set[Attempt]) -> tuple[list[Cause], set[Attempt]]:
    """Groups of two and more, between which nothing arrives either way."""
    hosts = dict.fromkeys(host for one in attempts for host in one.pair)
    group = {host: host for host in hosts}

    def root(host: str) -> str:
        while group[host] != host:
            host = group[host]
        return host

    for one in attempts:
        if one not in failed:
            group[root(one.source)] = root(one.target)
    groups: dict[str, list[str]] = {}
    for host in hosts:
        groups.setdefault(root(host), []).append(host)
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
    """The fewest hosts whose rows and columns fail as a whole; what fits two of them alike is left."""
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
    for one in attempts:
        lines.setdefault((one.target, "in"), {}).setdefault(one.place.port, []).append(one)
        lines.setdefault((one.source, "out"), {}).setdefault(one.place.port, []).append(one)
    found = []
    for (host, direction), by_port in lines.items():
        ports = [port for port, line in by_port.items() if all(one in failed for one in line)]
        limited = len(ports) < len(by_port)
        covers = frozenset(one for port in ports for one in by_port[port])
        # of a port that one host alone has, one connection tells nothing about who is to blame
        if ports and (not limited or len({one.pair for one in covers}) > 1):
            found.append(_Whole(host, direction, tuple(sorted(ports)), limited, covers))
    return found


def _told(wholes: Iterable[_Whole]) -> list[Cause]:
    """A host that is cut off both ways is told once; hosts with the same fault are told together."""
    by_host: dict[str, dict[Direction, _Whole]] = {}
    for whole in wholes:
        by_host.setdefault(whole.host, {})[whole.direction] = whole
    alike: dict[tuple[str, tuple[int, ...], bool, tuple[tuple[str, str], ...]], list[_Whole]] = {}
    for ways in by_host.values():
        both = len(ways) == 2 and not any(whole.limited for whole in ways.values())
        for direction, whole in ways.items():
            if both and direction == "out":
                continue
            kind = "cut_off" if both else f"firewall_{direction}"
            ports = whole.ports if whole.limited or kind == "firewall_in" else ()
            alike.setdefault((kind, ports, whole.limited, tuple(_how(whole.covers).items())), []).append(whole)
    causes = []
    for (kind, ports, limited, how), group in alike.items():
        hosts = tuple(dict.fromkeys(whole.host for whole in group))
        ends = (one for whole in group for one in whole.covers)
        others = dict.fromkeys(one.target if kind == "firewall_out" else one.source for one in sorted(ends, key=_key))
        fields = {"limited": limited, **dict(how), **({"ports": ports} if ports else {})}
        causes.append(Cause(kind, hosts, tuple(host for host in others if host not in hosts), fields))
    return causes


def _pairs(rest: set[Attempt], attempts: Sequence[Attempt]) -> list[Cause]:
    """What no single host explains: from some to one, and not back, or neither way."""
    broken = {one.pair for one in rest}
    whole = {one.pair for one in attempts} - broken
    if len({frozenset(pair) for pair in broken}) > MOST_PAIRS:
        found = sorted(rest, key=_key)
        hosts, others = (tuple(dict.fromkeys(one.pair[end] for one in found)) for end in (1, 0))
        return [Cause("scattered", hosts, others, {"failed": len(rest), "tried": len(attempts), **_how(rest)})]
    groups: dict[tuple[str, bool], list[Attempt]] = {}
    for one in sorted(rest, key=_key):
        back = one.pair[::-1] in whole
        if not back and one.source > one.target and one.pair[::-1] in broken:
            continue  # told with the other direction
        groups.setdefault((one.target, back), []).append(one)
    return [
        Cause(
            "one_way" if back else "pair",
            (target,),
            tuple(dict.fromkeys(one.source for one in group)),
            {"ports": tuple(sorted({one.place.port for one in group})), **_how(group)},
        )
        for (target, back), group in groups.items()
    ]


def _how(failed: Iterable[Attempt]) -> dict[str, str]:
    """drop: nothing came back; reject: somebody said no, and `text` is the system's word for it."""
    words = {one.hindrance: one.text for one in sorted(failed, key=_key)}
    refusals = {kind: text for kind, text in words.items() if kind != "timeout"}
    if not refusals:
        return {"mode": "drop"}
    mode = "reject" if "timeout" not in words else "mixed"
    return {"mode": mode, "text": next(iter(refusals.values()))}


def _key(one: Attempt) -> tuple[str, str, int, str]:
    return one.source, one.target, one.place.port, one.place.whose
