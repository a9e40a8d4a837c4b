"""Why a run is not faster: one rule for each cause, over the facts of a minute. Pure.

A cause is reported if its rule holds in more than half of the minutes that are judged, so at least for a minute. The
cause that costs the workers the most time comes first. `docs/speed.md` has the rules in words.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Literal

from dtctl.dataclass import dataclass
from dtctl.rooms.speed.expected import Range, faster, share_by_greedy
from dtctl.rooms.speed.facts import Facts, Minute, merged

Kind = Literal[
    "unbalanced",
    "busy_server",
    "network",
    "throttled",
    "shared_cpu",
    "oversubscribed",
    "swapping",
    "stolen",
    "input",
]

WAITS = 0.3
"""The share of the workers' time from which on waiting for other tasks is a cause."""
FULL = 0.85
"""The share of a link's speed, or of a thread's time, from which on it is full."""
UNDER_WAY = 0.8
"""The share of time with data under way from which on a link of unknown speed is full."""
LEAST_BYTES = 1e6
"""Bytes a second below which a link is not full, whatever is under way: heartbeats over a slow one."""
LARGER = 1.5
"""How many times its fair share a server carries that has too much."""
THROTTLED = 0.2
WITHOUT_CPU = 0.3
LEAST_WANTED = 0.2
"""Processors that a task must want at least: others wait for none."""
OTHERS = 0.5
"""Processors that other programs keep busy."""
STOLEN = 0.1
SWAPS_BYTES = 1e6
FAULTS = 50.0
IDLE = 0.5
MORE_THAN_OTHERS = 2.0


_OF_HOSTS = ("network", "shared_cpu", "oversubscribed", "stolen")


@dataclass(frozen=True)
class Verdict:
    """A cause. `tasks` and `hosts`: whom it is about; `figures`: its evidence."""

    kind: Kind
    tasks: tuple[str, ...]
    hosts: tuple[str, ...]
    costs: float
    """The share of the workers' time that it takes, at most."""
    figures: Mapping[str, Any]
    expected: Range | None = None
    """How many times the steps a second, if it is removed: at least and at most."""
    minutes: int = 1
    """The number of judged minutes in which it held."""

    @property
    def subject(self) -> tuple[Kind, tuple[str, ...], tuple[str, ...]]:
        """The same in each minute; which of a host's tasks suffer may change."""
        return self.kind, () if self.kind in _OF_HOSTS else self.tasks, self.hosts


def judged(minutes: Sequence[Minute]) -> tuple[Verdict, ...]:
    """What holds in more than half of these minutes, the newest of which is the first; with its figures over those."""
    found = [list(verdicts_of(Facts(minute))) for minute in minutes]
    counts = Counter(one.subject for each in found for one in each)
    kept = []
    for subject, count in counts.items():
        if 2 * count <= len(minutes):
            continue
        held = [minute for minute, each in zip(minutes, found, strict=True) if subject in [one.subject for one in each]]
        facts = merged(held)
        whole = [one for one in verdicts_of(facts) if one.subject == subject] if facts is not None else []
        newest = next(one for each in found for one in each if one.subject == subject)
        best = (whole or [newest])[0]
        kept.append(dataclasses.replace(best, minutes=count))
    return tuple(sorted(kept, key=lambda one: (-one.costs, one.kind, one.tasks)))


def verdicts_of(facts: Facts) -> Iterator[Verdict]:
    if not facts.workers:
        return
    servers = [*unbalanced(facts)] or [*busy_server(facts)]
    yield from servers
    if not servers:
        yield from network(facts)
    slow = [*throttled(facts), *swapping(facts), *stolen(facts)]
    shared = [*shared_cpu(facts)]
    found = {one.hosts for one in shared}
    cpu = [*shared, *(one for one in oversubscribed(facts) if one.hosts not in found)]
    yield from slow
    yield from cpu
    if not (servers or slow or cpu):
        yield from idle(facts)


def unbalanced(facts: Facts) -> Iterator[Verdict]:
    """One of several servers carries LARGER than its share, and workers wait for it WAITS of their time, or its busiest
    thread is FULL.
    """
    servers = facts.servers
    carried = {task: facts.carried(task) for task in servers}
    whole = sum(carried.values())
    if len(servers) < 2 or not whole:
        return
    first = max(servers, key=lambda task: carried[task])
    share = carried[first] / whole
    waits = _mean([facts.waits_for(worker, first) for worker in facts.workers])
    is_busy = facts.thread(first) >= FULL
    if share < LARGER / len(servers) or not (is_busy or (waits is not None and waits >= WAITS)):
        return
    costs = max(waits or 0.0, facts.thread(first) if is_busy else 0.0)
    fair, largest = share_by_greedy(facts.parameters, len(servers))
    figures = {
        "waits": waits,
        "share": share,
        "bytes": carried[first],
        "others": {task: carried[task] for task in servers if task != first},
        "thread": facts.thread(first),
        "servers": len(servers),
        "largest": largest,
        "by_greedy": fair,
    }
    best = min(1.0, max(fair, 1 / len(servers)) / share)
    yield Verdict("unbalanced", (first,), (facts.places[first],), costs, figures, faster(costs * (1 - best)))


def busy_server(facts: Facts) -> Iterator[Verdict]:
    """The busiest thread of a server is FULL, and each worker computes less than that."""
    for task in facts.servers:
        thread = facts.thread(task)
        most = max(facts.computes(worker)[0] for worker in facts.workers)
        if thread >= FULL and most < thread - 0.1:
            figures = {"thread": thread, "name": facts.uses[task]["thread"], "bytes": facts.carried(task), "most": most}
            yield Verdict("busy_server", (task,), (facts.places[task],), thread - most, figures, faster(thread / 2))


def network(facts: Facts) -> Iterator[Verdict]:
    """An interface carries FULL of its speed; or, where that is unknown, data is UNDER_WAY from a task to another
    host; and the workers spend WAITS of their time on the network.
    """
    for host in facts.hosts:
        for link in facts.links(host):
            tasks = _loaded(facts, host, sends=link.sends)
            if link.share is not None and link.share < FULL:
                continue
            if link.share is None and (not tasks or link.bits < 8 * LEAST_BYTES):
                continue
            waits = _mean([facts.on_network(worker) for worker in facts.workers])
            if waits is None or waits < WAITS:
                continue
            figures = {
                "sends": link.sends,
                "bits": link.bits,
                "most_bits": link.most_bits,
                "waits": waits,
                "pairs": {f"{task}>{peer}": share for (task, peer), share in tasks.items()},
            }
            named = tuple(sorted({task if link.sends else peer for task, peer in tasks}))
            yield Verdict("network", named, (host,), waits, figures, faster(waits / 2))
            return  # the other end of the same connections is as busy


def _loaded(facts: Facts, host: str, *, sends: bool) -> dict[tuple[str, str], float]:
    """The pairs of tasks on this host and on others with data UNDER_WAY in this direction, and for how long."""
    found = {}
    for task, peer in facts.matrix:
        here, there = (task, peer) if sends else (peer, task)
        if facts.places.get(here) == host and there in facts.places and facts.places[there] != host:
            share = facts.under_way(task, peer)
            if share is not None and share >= UNDER_WAY:
                found[task, peer] = share
    return found


def throttled(facts: Facts) -> Iterator[Verdict]:
    """The control group of a task has used up its quota for THROTTLED of the time."""
    for task in (*facts.workers, *facts.servers):
        share = facts.throttled(task)
        if share >= THROTTLED:
            figures = {"throttled": share, "cpu": facts.cpu(task), "others": _of_others(facts, task, facts.cpu)}
            yield Verdict("throttled", (task,), (facts.places[task],), share, figures, faster(share))


def shared_cpu(facts: Facts) -> Iterator[Verdict]:
    """Threads of tasks are without a processor for WITHOUT_CPU of the time in which they want to run, while programs
    outside the run keep at least OTHERS busy on their host, and more than half as many as the tasks.
    """
    for host, sample in facts.hosts.items():
        own = facts.tasks_on(host)
        others = facts.others(host)
        short = tuple(task for task in own if facts.waits(task) >= WITHOUT_CPU and facts.wants(task) >= LEAST_WANTED)
        if short and others is not None and others >= max(OTHERS, sum(map(facts.cpu, own)) / 2):
            waits = max(map(facts.waits, short))
            figures = {"waits": waits, "others": others, "cpus": sample["cpus"], "cpu": sum(map(facts.cpu, short))}
            yield Verdict("shared_cpu", short, (host,), waits, figures, faster(waits))


def oversubscribed(facts: Facts) -> Iterator[Verdict]:
    """The tasks of a host are without a processor for WITHOUT_CPU of the time in which they want to run, its processors
    are FULL, and programs outside the run keep fewer of them busy than the tasks.
    """
    for host, sample in facts.hosts.items():
        own = facts.tasks_on(host)
        busy = facts.busy(host)
        waits_s = sum(facts.uses[task]["waits_s"] or 0.0 for task in own)
        cpu_s = sum(facts.uses[task]["cpu_s"] for task in own)
        waits = waits_s / (waits_s + cpu_s) if waits_s + cpu_s > 0 else 0.0
        is_full = busy is not None and busy >= FULL * sample["cpus"]
        if is_full and waits >= WITHOUT_CPU and sum(map(facts.cpu, own)) > (facts.others(host) or 0.0):
            threads = sum(facts.uses[task]["threads"] for task in own)
            figures = {"waits": waits, "cpus": sample["cpus"], "threads": threads, "tasks": len(own)}
            yield Verdict("oversubscribed", tuple(own), (host,), waits / 2, figures)


def swapping(facts: Facts) -> Iterator[Verdict]:
    """A host swaps SWAPS_BYTES a second, and a task reads FAULTS pages a second back."""
    for task in (*facts.workers, *facts.servers):
        host, use = facts.places[task], facts.uses[task]
        faults = use["faults"] / use["seconds"] if use["seconds"] else 0.0
        if facts.swapped(host) >= SWAPS_BYTES and faults >= FAULTS:
            figures = {"bytes": facts.swapped(host), "faults": faults}
            yield Verdict("swapping", (task,), (host,), 1.0, figures)


def stolen(facts: Facts) -> Iterator[Verdict]:
    """Other guests of the same machine take STOLEN of the time of a host's processors."""
    for host in facts.hosts:
        share = facts.stolen(host)
        own = tuple(facts.tasks_on(host))
        if share >= STOLEN and own:
            yield Verdict("stolen", own, (host,), share, {"stolen": share}, faster(share))


def idle(facts: Facts) -> Iterator[Verdict]:
    """Workers compute, wait for other tasks and for processors for less than 1 - IDLE of their time."""
    idle_shares = {}
    for task in facts.workers:
        network_share = facts.on_network(task) or 0.0
        share = 1.0 - min(1.0, facts.computes(task)[1] * (1 + facts.waits(task)) + network_share)
        if share >= IDLE:
            idle_shares[task] = share
    if not idle_shares:
        return
    tasks = tuple(idle_shares)
    figures = {
        "idle": median(idle_shares.values()),
        "of": len(facts.workers),
        "read": sum(facts.uses[task]["read_bytes"] / max(1.0, facts.uses[task]["seconds"]) for task in tasks),
        "elsewhere": sum(facts.elsewhere(task) for task in tasks),
        "disk": max(
            facts.hosts[host]["waited_s"].get("io", 0.0) / max(1.0, facts.hosts[host]["seconds"])
            for host in {facts.places[task] for task in tasks}
        ),
    }
    hosts = tuple(dict.fromkeys(facts.places[task] for task in tasks))
    yield Verdict("input", tasks, hosts, figures["idle"], figures, faster(figures["idle"]))


def _of_others(facts: Facts, task: str, value: Any) -> float | None:
    """The median of the other tasks of the same kind."""
    kind = facts.workers if task in facts.workers else facts.servers
    others = [value(one) for one in kind if one != task]
    return median(others) if others else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) / len(known) if known else None
