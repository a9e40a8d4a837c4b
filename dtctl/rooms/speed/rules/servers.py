"""Rules about the tasks that hold the parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dtctl.rooms.speed.expected import Range, faster, share_by_greedy
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.limits import FULL, LARGER, ONE, WAITS
from dtctl.rooms.speed.rules.means import mean
from dtctl.rooms.speed.verdict import Verdict


class Heaviest(NamedTuple):
    """The server with the most traffic."""

    task: str
    share: float
    """Its share of the traffic of all servers."""
    waits: float | None
    """The share of the workers' time in which data is on its way to or from it."""
    certain: float | None
    """The same, without the time in which they compute."""


def heaviest(facts: Facts) -> Heaviest | None:
    """None if no server carries anything."""
    carried = {task: facts.carried(task) for task in facts.servers}
    whole = sum(carried.values())
    if not whole:
        return None
    first = max(carried, key=lambda task: carried[task])
    each = {worker: facts.waits_for(worker, first) for worker in facts.workers}
    certain = mean([facts.waits_for_certain(worker, one) for worker, one in each.items()])
    return Heaviest(first, carried[first] / whole, mean([*each.values()]), certain)


def relieved(facts: Facts, costs: float, share: float, fair: float, *, is_busy: bool = False) -> Range:
    """The effect on the steps/s of giving a server that `costs` this much of a step the share `fair` of the traffic.

    `is_busy`: it can do no more.
    """
    gain = faster(costs * (1 - min(1.0, fair / share)))
    if facts.is_synchronous or is_busy:
        return gain
    return gain._replace(least=1.0)  # workers that fetch in turn may be held up by links of their own


def unbalanced(facts: Facts) -> Iterator[Verdict]:
    """One of several servers carries LARGER than its share, and workers wait for it WAITS of their time, or its busiest
    thread is FULL.
    """
    servers, found = facts.servers, heaviest(facts)
    if len(servers) < 2 or found is None:
        return
    first, share, waits, certain = found
    is_busy = facts.thread(first) >= FULL
    if share < LARGER / len(servers) or not (is_busy or (certain is not None and certain >= WAITS)):
        return
    costs = max(waits or 0.0, facts.thread(first) if is_busy else 0.0)
    fair, largest = share_by_greedy(facts.parameters, len(servers))
    figures = {
        "waits": waits,
        "share": share,
        "bytes": facts.carried(first),
        "others": {task: facts.carried(task) for task in servers if task != first},
        "thread": facts.thread(first),
        "servers": len(servers),
        "largest": largest,
        "by_greedy": fair,
    }
    expected = relieved(facts, costs, share, 1 / len(servers), is_busy=is_busy)
    yield Verdict("unbalanced", (first,), (facts.places[first],), costs, figures, expected)


def busy_server(facts: Facts) -> Iterator[Verdict]:
    """The busiest thread of a server is FULL, or its threads in turn; and no worker computes as much for certain."""
    most = max(facts.computes(worker)[0] for worker in facts.workers)
    for task in facts.servers:
        thread, busy = facts.thread(task), kept_busy(facts, task)
        if busy < FULL or most >= busy - 0.1:
            continue
        figures = {
            "thread": thread,
            "name": facts.uses[task]["thread"],
            "threads": facts.uses[task]["threads"] if busy > thread else None,
            "busy": busy,
            "bytes": facts.carried(task),
            "most": most,
        }
        yield Verdict("busy_server", (task,), (facts.places[task],), busy - most, figures, faster(busy / 2))


def kept_busy(facts: Facts, task: str) -> float:
    """The share of time in which a server can do no more: that of its busiest thread.

    Or that of all of its threads, if one of them runs at a time: together they use FULL to ONE of a processor, and
    each worker is idle WAITS of its time.
    """
    thread, cpu = facts.thread(task), facts.cpu(task)
    in_turn = thread < FULL <= cpu <= ONE and min(facts.idle(worker) for worker in facts.trainers) >= WAITS
    return min(1.0, cpu) if in_turn else thread
