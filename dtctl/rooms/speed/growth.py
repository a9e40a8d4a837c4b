"""What more workers or more servers would bring: a model of a run whose tasks share something. Pure.

A worker's step takes 1. Of that it keeps each shared task (a ps, or the client that deals out data) busy for a part,
its demand. The total of N workers cannot exceed what that task serves, which is the asymptotic bound of a closed
queueing network (Lazowska et al., Quantitative System Performance, 1984, chapter 5); and each worker that is added
delays a step of every other one by its own demand at most. Between workers that exchange gradients with each other, a
ring carries 2 (N - 1) / N times the bytes of the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dtctl.dataclass import dataclass
from dtctl.rooms.speed.expected import Range
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.limits import WAITS
from dtctl.rooms.speed.rules.means import mean
from dtctl.rooms.speed.rules.servers import heaviest, kept_busy, relieved

ENOUGH = 0.05
"""The least share of time in which a task is busy that is said to limit the workers."""


@dataclass(frozen=True)
class More:
    """A run with this number of workers or of ps tasks, each new one on a host of its own."""

    tasks: int
    gain: Range
    """How many times what all workers together do now in a second: at least and at most."""


@dataclass(frozen=True)
class Growth:
    """What more tasks would bring."""

    workers: tuple[More, ...]
    """One more, and twice as many; empty: unknown."""
    limit: Range | None
    """No number of workers brings more than so many times what there is; None: nothing shared limits them."""
    limited_by: str | None
    """The task that would be busy all the time then."""
    servers: tuple[More, ...]
    """Twice as many ps tasks, with the variables spread evenly; empty: the workers hardly wait for those there are."""


def growth(facts: Facts) -> Growth | None:
    """None if no task trains."""
    workers = facts.trainers
    if not workers:
        return None
    expected = {number: expected_gain(facts, number) for number in (len(workers) + 1, 2 * len(workers))}
    more = tuple(More(number, gain) for number, gain in expected.items() if gain is not None)
    busiest = _busiest(facts)
    if busiest is None or busiest.least < ENOUGH:
        return Growth(more, None, None, tuple(_servers(facts)))
    limit = Range(max(1.0, 1 / busiest.most), max(1.0, 1 / busiest.least))
    return Growth(more, limit, busiest.task, tuple(_servers(facts)))


def expected_gain(facts: Facts, workers: int) -> Range | None:
    """How many times what all workers do now so many would do; None: nothing is known of what they would share."""
    now = len(facts.trainers)
    busiest = _busiest(facts)
    if busiest is not None:
        return _shared(now, workers, busiest.least, busiest.most)
    return _ring(facts, workers) if now > 1 else None


class _Busy(NamedTuple):
    """The share of time in which a shared task is busy, at least and at most."""

    most: float
    least: float
    task: str


def _busiest(facts: Facts) -> _Busy | None:
    """None if the workers share no task."""
    workers = facts.trainers
    shared = facts.servers or [task for task in facts.workers if task not in workers]
    return max((_busy(facts, task, workers) for task in shared), default=None)


def _shared(now: int, then: int, least: float, most: float) -> Range:
    """`least`, `most`: the share of time in which the task that they share is busy now."""
    grown = then / now
    delayed = grown / (1 + (then - now) * most / now)
    at_most = min(grown, max(1.0, 1 / least)) if least > 0 else grown
    return Range(min(at_most, max(1.0, delayed)), at_most)


def _busy(facts: Facts, task: str, workers: Sequence[str]) -> _Busy:
    """At least as its thread, its link or the transfers of one worker; at most as all transfers, one by one.

    Of a transfer counts what the worker waits for: the rest may be an acknowledgement that is late.
    """
    sent = [facts.waits_for_certain(worker, facts.under_way(task, worker)) or 0.0 for worker in workers]
    received = [facts.waits_for_certain(worker, facts.under_way(worker, task)) or 0.0 for worker in workers]
    link = max((one.share or 0.0 for one in facts.links(facts.places[task])), default=0.0)
    least = max(kept_busy(facts, task), link, *sent, *received)
    return _Busy(min(1.0, max(least, sum(sent), sum(received))), min(1.0, least), task)


def _ring(facts: Facts, then: int) -> Range:
    """More workers that exchange their gradients."""
    now = len(facts.trainers)
    waits = mean([facts.on_network(worker) for worker in facts.trainers]) or 0.0
    longer = ((then - 1) / then) / ((now - 1) / now) - 1
    return Range(max(1.0, then / now / (1 + waits * longer)), then / now)


def _servers(facts: Facts) -> list[More]:
    found = heaviest(facts)
    if found is None or found.certain is None or found.certain < WAITS:
        return []
    number = 2 * len(facts.servers)
    return [More(number, relieved(facts, found.waits or 0.0, found.share, 1 / number))]
