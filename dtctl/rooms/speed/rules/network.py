"""Rules about the network between the hosts of a run."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.rooms.speed.expected import faster
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.limits import FULL, LEAST_RESENT, LEAST_SPEED, LONG_S, QUEUED, RESENT, STANDS_OUT, WAITS
from dtctl.rooms.speed.rules.means import mean
from dtctl.rooms.speed.verdict import Verdict


def loss(facts: Facts) -> Iterator[Verdict]:
    """RESENT of what goes to or from a host is sent again, and the workers spend WAITS of their time on the network.

    A link that is full loses packets, too, when its queue is: then round trips take LONG_S, and QUEUED times those of
    other connections.
    """
    shares = {host: facts.resent(host) for host in facts.hosts}
    lossy = {host: one for host, one in shares.items() if one.share >= RESENT and one.segments >= LEAST_RESENT}
    waits = _waits(facts)
    if not lossy or waits is None or (_waits(facts, certain=True) or 0.0) < WAITS:
        return
    host = max(lossy, key=lambda name: lossy[name].segments)
    others = [shares[name].share for name in facts.hosts if name != host]
    usual_s = facts.rtt_s(but=host)
    if shares[host].rtt_s > (max(LONG_S, QUEUED * usual_s) if usual_s is not None and usual_s < LONG_S else LONG_S):
        return
    figures = {
        "share": shares[host].share,
        "segments": shares[host].segments,
        "others": max(others, default=0.0),
        "waits": waits,
    }
    yield Verdict("loss", tuple(sorted(facts.tasks_on(host))), (host,), waits, figures, faster(waits / 2))


def network(facts: Facts) -> Iterator[Verdict]:
    """The workers spend WAITS of their time on the network, or one of them does and another host's link is slower.

    The host at which data is under way the longest is named, if that STANDS_OUT; or the one whose interface is FULL.
    """
    loads = {host: one for host in facts.hosts if (one := _load(facts, host)) is not None}
    waits = _waits(facts)
    if not loads or waits is None or (_waits(facts, certain=True) or 0.0) < WAITS:
        return
    ordered = sorted(loads, key=lambda host: -loads[host].under_way)
    first = ordered[0]
    second = loads[ordered[1]].under_way if len(ordered) > 1 else 0.0
    full = [(link.share, host) for host in facts.hosts for link in facts.links(host) if (link.share or 0.0) >= FULL]
    if full:
        first = max(full)[1]
    named = full or len(ordered) == 1 or loads[first].under_way >= STANDS_OUT * second
    hosts = (first,) if named else tuple(sorted(loads))
    pairs = {pair: share for host in hosts for pair, share in loads[host].pairs.items()}
    link = max(facts.links(first), key=lambda one: one.bits, default=None)
    figures = {
        "sends": link.sends if link is not None else True,
        "bits": link.bits if link is not None else 0.0,
        "most_bits": link.most_bits if link is not None else None,
        "speed": 8 * max(loads[host].speed for host in hosts),
        "waits": waits,
        "pairs": {f"{task}>{peer}": share for (task, peer), share in sorted(pairs.items(), key=lambda one: -one[1])},
    }
    tasks = tuple(sorted({task for host in hosts for task in facts.tasks_on(host)})) if named else ()
    yield Verdict("network", tasks, hosts, waits, figures, faster(waits / 2))


class _Load:
    """What goes between the tasks of a host and those of others."""

    def __init__(self, pairs: dict[tuple[str, str], float], carried: float) -> None:
        self.pairs = pairs
        """The share of time in which data was under way, by sender and receiver."""
        self.under_way = sum(pairs.values())
        self.speed = carried / max(pairs.values())
        """Bytes a second while data was under way, at least: as if all of it had been so at once."""


def _load(facts: Facts, host: str) -> _Load | None:
    pairs, carried = {}, 0.0
    for (task, peer), bytes_ in facts.matrix.items():
        places = facts.places.get(task), facts.places.get(peer)
        if host not in places or None in places or places[0] == places[1]:
            continue
        share = facts.under_way(task, peer)
        if share and bytes_ / share >= LEAST_SPEED:
            pairs[task, peer] = share
            carried += bytes_
    return _Load(pairs, carried) if pairs else None


def _waits(facts: Facts, *, certain: bool = False) -> float | None:
    """The share of time: of the workers on average if they are independent; else the slowest keeps the others.

    `certain`: without the time in which they compute.
    """
    shares = {worker: facts.on_network(worker) for worker in facts.workers}
    if certain:
        shares = {worker: facts.waits_for_certain(worker, share) for worker, share in shares.items()}
    known = [one for one in shares.values() if one is not None]
    return max(known) if known and facts.is_synchronous else mean(known)
