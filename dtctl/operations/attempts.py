"""A run's story with each attempt of a task as one entry, in place of the states that it went through."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dtctl.agent.records.reasons import Fact
    from dtctl.operations.events import Happening

_ENDS = frozenset({"backoff", "succeeded", "failed", "stopped", "pending"})


_CLOCKS_AGREE_S = 1.0
_MOST_PASSED = 200
"""Lines that one which was told late is put before."""


@dataclass(frozen=True)
class Attempted:
    """An attempt: how long it ran and what it ended with. Its time, in epoch seconds, is that of its end.

    `state`: the one that followed, or the one that it is in: then the time is that of its beginning. `ran_s` None:
    nobody has seen it run. `again`: another attempt has followed.
    """

    task: str
    host: str | None
    attempt: int
    time: float
    ran_s: float | None
    state: str
    why: tuple[Fact, ...]
    again: bool = False

    @property
    def ended(self) -> bool:
        return self.state in _ENDS


class Folding:
    """Takes a story line by line, as it comes."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], float] = {}
        self._open: dict[tuple[str, int], Happening] = {}
        """The last transition of each attempt that has not ended."""
        self._stalled: dict[tuple[str, int], tuple[Fact, ...]] = {}

    def take(self, one: Happening) -> Iterator[Happening | Attempted]:
        """What is to be told now: nothing of an attempt before its end, and what is no attempt's as it is."""
        if one.kind != "task" or one.task is None or one.before == one.after:
            if one.kind != "task" or not _is_ending(one):
                yield one
            return
        key = (one.task, one.attempt or 0)
        if one.after in _ENDS:
            if key in self._open:
                yield self._ended(key, one)
            elif one.after not in ("pending", "backoff"):
                yield one  # it ends without having begun
            return
        yield from self._before(key, one)
        self._open[key] = one
        if one.after == "running":
            self._running[key] = one.time
        elif one.after == "stalled":
            self._stalled[key] = one.why

    def _before(self, key: tuple[str, int], one: Happening) -> Iterator[Attempted]:
        """Earlier attempts of the task that nobody saw between their end and this one's beginning."""
        for earlier in [other for other in self._open if other[0] == key[0] and other[1] < key[1]]:
            yield self._ended(earlier, dataclasses.replace(one, after="pending"))

    def rest(self) -> list[Attempted]:
        """Attempts that have not ended."""
        return [
            Attempted(
                task, last.host, attempt, self._running.get((task, attempt), last.time), None, str(last.after), last.why
            )
            for (task, attempt), last in self._open.items()
        ]

    def _ended(self, key: tuple[str, int], end: Happening) -> Attempted:
        last = self._open.pop(key)
        began = self._running.pop(key, None)
        why = self._stalled.pop(key, ()) if end.after == "pending" else ()
        ran_s = None if began is None else max(0.0, end.time - began)
        return Attempted(key[0], end.host or last.host, key[1], end.time, ran_s, str(end.after), why or end.why)


def folded(story: Iterable[Happening]) -> list[Happening | Attempted]:
    """In the order of the story, but causes before effects; attempts that have not ended stand where they began."""
    folding = Folding()
    told: list[Happening | Attempted] = []
    for entry in (entry for one in story for entry in folding.take(one)):
        told.insert(_place(told, entry), entry)
    for running in folding.rest():
        later = (place for place, entry in enumerate(told) if entry.time > running.time)
        told.insert(next(later, len(told)), running)
    newest: dict[str, int] = {}
    for entry in told:
        if isinstance(entry, Attempted):
            newest[entry.task] = max(newest.get(entry.task, 0), entry.attempt)
    return [_with_sequel(entry, newest) for entry in told]


def _place(told: Sequence[Happening | Attempted], entry: Happening | Attempted) -> int:
    """Before what came later: the coordinator hears of an end with the host's next message, or when the host is back.

    Of what is closer than the clocks of hosts agree the coordinator knows the order.
    """
    place = len(told)
    while place > max(0, len(told) - _MOST_PASSED) and told[place - 1].time > entry.time + _CLOCKS_AGREE_S:
        place -= 1
    return place


def _with_sequel(entry: Happening | Attempted, newest: Mapping[str, int]) -> Happening | Attempted:
    if isinstance(entry, Attempted) and entry.attempt < newest[entry.task]:
        return dataclasses.replace(entry, again=True)
    return entry


def _is_ending(one: Happening) -> bool:
    """That a task has been asked to end is told with its end."""
    return [fact["kind"] for fact in one.why] == ["ending"]
