"""Rules about the tasks that hold the parameters."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.rooms.speed.expected import faster, share_by_greedy
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.limits import FULL, LARGER, ONE, WAITS
from dtctl.rooms.speed.rules.means import mean
from dtctl.rooms.speed.verdict import Verdict


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
    each = {worker: facts.waits_for(worker, first) for worker in facts.workers}
    waits = mean([*each.values()])
    certain = mean([facts.waits_for_certain(worker, one) for worker, one in each.items()])
    is_busy = facts.thread(first) >= FULL
    if share < LARGER / len(servers) or not (is_busy or (certain is not None and certain >= WAITS)):
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
    expected = faster(costs * (1 - min(1.0, 1 / len(servers) / share)))
    if not facts.is_synchronous and not is_busy:
        expected = expected._replace(least=1.0)  # workers that fetch in turn may be held up by links of their own
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
