"""Rules about what workers wait for besides the network: each other, their input, checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median

from dtctl.rooms.speed.expected import Range, faster, times
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.limits import COMPUTES, DEALS, FED, IDLE, SAVES, SLOWER, STALE
from dtctl.rooms.speed.rules.means import mean
from dtctl.rooms.speed.verdict import Verdict


def straggler(facts: Facts) -> Iterator[Verdict]:
    """Workers wait for each other, and one computes SLOWER than their median, COMPUTES of its time.

    Without it a step takes as long as the median worker needs; with a backup worker, as long as the second slowest.
    """
    if not facts.is_synchronous or len(facts.trainers) < 2:
        return
    shares = {task: facts.works(task) for task in facts.trainers}
    slowest = max(shares, key=lambda task: shares[task])
    others = sorted(share for task, share in shares.items() if task != slowest)
    usual = median(others)
    if shares[slowest] < COMPUTES or shares[slowest] < SLOWER * usual:
        return
    saved = shares[slowest] - usual
    figures = {
        "computes": shares[slowest],
        "others": usual,
        "median": times(saved),
        "backup": times(shares[slowest] - others[-1]),
        "gpu": facts.gpu(slowest) is not None,
    }
    yield Verdict("straggler", (slowest,), (facts.places[slowest],), saved, figures, faster(saved))


def stale(facts: Facts) -> Iterator[Verdict]:
    """Workers train independently, and one exchanges so little with the servers that STALE times as many steps of
    others as at equal speed lie between its read and its update.
    """
    if facts.is_synchronous is not False or len(facts.trainers) < 2 or not facts.servers:
        return
    paces = {task: facts.exchanged(task) for task in facts.trainers}
    whole, usual = sum(paces.values()), len(paces) - 1
    if not whole:
        return
    between = {task: whole / pace - 1 if pace else whole for task, pace in paces.items()}
    slow = tuple(task for task in facts.trainers if between[task] >= STALE * usual)
    if not slow or len(slow) == len(paces):
        return
    fair = median(pace for task, pace in paces.items() if task not in slow)
    missing = sum(max(0.0, fair - paces[task]) for task in slow) / whole
    figures = {
        "between": max(between[task] for task in slow),
        "usual": usual,
        "pace": max(paces[task] for task in slow) / fair,
    }
    hosts = tuple(dict.fromkeys(facts.places[task] for task in slow))
    costs = missing / (1 + missing)
    yield Verdict("stale", slow, hosts, costs, figures, Range(1.0, 1 + missing))


def saves(facts: Facts) -> Iterator[Verdict]:
    """A worker makes no step for SAVES of its time, each time while it writes to disks."""
    shares = {task: facts.saving(task) for task in facts.trainers}
    task = max(shares, key=lambda name: shares[name], default="")
    if not task or shares[task] < SAVES:
        return
    together = facts.is_synchronous is not False or len(facts.trainers) == 1
    costs = shares[task] if together else shares[task] / len(facts.trainers)
    kept = sorted((one["time"] for one in facts.saves), reverse=True)
    gaps = [later - earlier for later, earlier in pairwise(kept)]
    every = median(gaps) if gaps else None
    figures = {
        "share": shares[task],
        "every": every,
        "takes": shares[task] * every if every is not None else None,
        "bytes": max((one["size_bytes"] for one in facts.saves), default=None),
        "together": together,
        "written": facts.uses[task]["written_bytes"] / max(1.0, facts.uses[task]["seconds"]),
    }
    yield Verdict("saves", (task,), (facts.places[task],), costs, figures, Range(times(costs * 0.8), times(costs)))


def feeder(facts: Facts) -> Iterator[Verdict]:
    """One task sends FED of what each other worker receives from the run, and computes or sends DEALS of its time; they
    do nothing IDLE of theirs.
    """
    for task in facts.workers:
        others = [one for one in facts.workers if one != task]
        received = {one: facts.received(one) for one in others}
        if not others or not all(received.values()):
            continue
        shares = [facts.matrix.get((task, one), 0.0) / received[one] for one in others]
        if min(shares) < FED:
            continue
        idle = median(1.0 - facts.works(one) for one in others)
        sends = min(1.0, sum(facts.under_way(task, one) or 0.0 for one in others))
        thread = facts.thread(task)
        if idle < IDLE or max(sends, thread) < DEALS:
            continue
        figures = {
            "workers": len(others),
            "bytes": sum(facts.matrix.get((task, one), 0.0) for one in others),
            "sends": sends,
            "thread": thread,
            "idle": idle,
        }
        yield Verdict("feeder", (task,), (facts.places[task],), idle, figures, faster(idle))


def idle(facts: Facts) -> Iterator[Verdict]:
    """Workers compute, wait for other tasks, processors and checkpoints for less than 1 - IDLE of their time."""
    idle_shares = {}
    for task in facts.trainers:
        if facts.idle(task) >= IDLE:
            idle_shares[task] = facts.idle(task)
    if not idle_shares:
        return
    tasks = tuple(idle_shares)
    figures = {
        "idle": median(idle_shares.values()),
        "of": len(facts.trainers),
        "read": sum(facts.uses[task]["read_bytes"] / max(1.0, facts.uses[task]["seconds"]) for task in tasks),
        "elsewhere": sum(facts.elsewhere(task) for task in tasks),
        "disk": max(
            facts.hosts[host]["waited_s"].get("io", 0.0) / max(1.0, facts.hosts[host]["seconds"])
            for host in {facts.places[task] for task in tasks}
        ),
    }
    hosts = tuple(dict.fromkeys(facts.places[task] for task in tasks))
    costs = mean([idle_shares.get(task, 0.0) for task in facts.trainers]) or 0.0
    if facts.is_synchronous:
        costs = figures["idle"]
    yield Verdict("input", tasks, hosts, costs, figures, faster(costs))
