"""Why a run is not faster: one rule for each cause, over the facts of a minute. Pure.

A cause is reported if its rule holds in more than half of the minutes that are judged, so at least for a minute. The
cause that costs the workers the most time comes first. `docs/speed.md` has the rules in words.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence

from dtctl.rooms.speed.facts import Facts, Minute, merged
from dtctl.rooms.speed.rules.network import loss, network
from dtctl.rooms.speed.rules.pacing import feeder, idle, saves, stale, straggler
from dtctl.rooms.speed.rules.processors import oversubscribed, shared_cpu, stolen, swapping, throttled
from dtctl.rooms.speed.rules.servers import busy_server, unbalanced
from dtctl.rooms.speed.verdict import Verdict


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
    """A cause explains others: those that it would bring about by itself are not looked for."""
    if not facts.workers:
        return
    transfers = [*unbalanced(facts)] or [*busy_server(facts)] or [*feeder(facts)] or [*loss(facts)] or [*network(facts)]
    shared = [*shared_cpu(facts)]
    found = {one.hosts for one in shared}
    cpu = [*shared, *(one for one in oversubscribed(facts) if one.hosts not in found)]
    limited = [*throttled(facts)]
    waiting = {task for one in limited for task in one.tasks}
    cpu = [one for one in cpu if not set(one.tasks) <= waiting]
    slow = [*limited, *swapping(facts), *stolen(facts), *cpu]
    stopped = [*saves(facts)]
    yield from transfers
    yield from slow
    yield from stopped
    paced = [*straggler(facts), *stale(facts)] if not (transfers or slow) else []
    yield from paced
    if not (transfers or slow or stopped or any(one.kind == "straggler" for one in paced)):
        yield from idle(facts)
