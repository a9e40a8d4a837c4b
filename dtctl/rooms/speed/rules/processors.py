"""Rules about processors and memory of hosts."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.rooms.speed.expected import faster
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.limits import FAULTS, FULL, LEAST_LOST, OTHERS, STOLEN, SWAPS_BYTES, THROTTLED, WITHOUT_CPU
from dtctl.rooms.speed.rules.means import of_others
from dtctl.rooms.speed.verdict import Verdict


def throttled(facts: Facts) -> Iterator[Verdict]:
    """The control group of a task has used up its quota for THROTTLED of the time."""
    for task in (*facts.workers, *facts.servers):
        share = facts.throttled(task)
        if share >= THROTTLED:
            figures = {"throttled": share, "cpu": facts.cpu(task), "others": of_others(facts, task, facts.cpu)}
            yield Verdict("throttled", (task,), (facts.places[task],), share, figures, faster(share))


def shared_cpu(facts: Facts) -> Iterator[Verdict]:
    """Threads of tasks are without a processor for WITHOUT_CPU of the time in which they want to run, the processors of
    their host are FULL, and programs outside the run keep at least OTHERS busy, and more than half as many as the
    tasks. On a host that is not full, threads wait for each other.
    """
    for host, sample in facts.hosts.items():
        own = facts.tasks_on(host)
        others = facts.others(host)
        short = tuple(task for task in own if facts.waits(task) >= WITHOUT_CPU and facts.lost(task) >= LEAST_LOST)
        if (
            short
            and _is_full(facts, host)
            and others is not None
            and others >= max(OTHERS, sum(map(facts.cpu, own)) / 2)
        ):
            waits = max(map(facts.waits, short))
            figures = {"waits": waits, "others": others, "cpus": sample["cpus"], "cpu": sum(map(facts.cpu, short))}
            costs = min(waits, max(map(facts.lost, short)))
            yield Verdict("shared_cpu", short, (host,), costs, figures, faster(costs))


def _is_full(facts: Facts, host: str) -> bool:
    busy = facts.busy(host)
    return busy is not None and busy >= FULL * facts.hosts[host]["cpus"]


def oversubscribed(facts: Facts) -> Iterator[Verdict]:
    """The tasks of a host are without a processor for WITHOUT_CPU of the time in which they want to run, its processors
    are FULL, and programs outside the run keep fewer of them busy than the tasks.
    """
    for host, sample in facts.hosts.items():
        own = facts.tasks_on(host)
        waits_s = sum(facts.uses[task]["waits_s"] or 0.0 for task in own)
        cpu_s = sum(facts.uses[task]["cpu_s"] for task in own)
        waits = waits_s / (waits_s + cpu_s) if waits_s + cpu_s > 0 else 0.0
        if _is_full(facts, host) and waits >= WITHOUT_CPU and sum(map(facts.cpu, own)) > (facts.others(host) or 0.0):
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
