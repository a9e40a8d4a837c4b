"""Who tries whom: everybody everybody, or where those would be too many each host some, in rotation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtctl.operations.networking.view import Place

MOST = 4000
"""Connections of one check, over all hosts."""
MOST_IN_PASSING = 16
"""Of each host while a run starts: enough to notice a host that nobody reaches, or that reaches nobody."""


@dataclass(frozen=True)
class Coverage:
    """`tries`: host -> the places of other hosts that it tries."""

    tries: Mapping[str, tuple[Place, ...]]
    count: int
    whole: int
    """Connections that there would be if everybody tried everybody."""
    partners: int
    """Hosts that each host tries at the least."""

    @property
    def is_whole(self) -> bool:
        return self.count == self.whole


def spread(hosts: Sequence[str], places: Sequence[Place], vital: Sequence[Place] = (), most: int = MOST) -> Coverage:
    """`vital` places are tried from every host before the others, as far as there is room for that.

    Each host tries, and is tried by, as many others; the distances to them are spread evenly, so that the two halves of
    any rack, switch or subnet meet.
    """
    on: dict[str, list[Place]] = {}
    for place in places:
        on.setdefault(place.host, []).append(place)
    whole = sum(len(places) - len(on.get(host, ())) for host in hosts)
    if whole <= most:
        tries = {host: tuple(place for place in places if place.host != host) for host in hosts}
        return Coverage(tries, whole, whole, max(0, len(hosts) - 1))
    chosen = {
        host: dict.fromkeys(_of(vital, host, most // (2 * len(hosts)), number)) for number, host in enumerate(hosts)
    }
    left = most - sum(map(len, chosen.values()))
    per_host = len(places) // len(on)
    partners = max(1, min(len(hosts) - 1, left // (len(hosts) * per_host)))
    for number, host in enumerate(hosts):
        for step in distances(len(hosts), partners):
            chosen[host].update(dict.fromkeys(on.get(hosts[(number + step) % len(hosts)], ())))
    told = {host: tuple(found) for host, found in chosen.items()}
    return Coverage(told, sum(map(len, told.values())), whole, partners)


def _of(places: Sequence[Place], host: str, most: int, turn: int) -> list[Place]:
    """At most so many of them, those of other hosts; each host begins elsewhere in the list."""
    others = [place for place in places if place.host != host]
    if len(others) <= most:
        return others
    start = turn * most
    return [others[(start + step) % len(others)] for step in range(most)]


def distances(hosts: int, partners: int) -> list[int]:
    """So many different steps from 1 to hosts - 1, evenly spread, the nearest among them."""
    return sorted({1 + step * (hosts - 1) // partners for step in range(partners)})
