"""The lines of many hosts in the order of their time, while they come.

A host tells its lines in that order already. So it is enough to know the next ones of each host, however much there is:
a host that is ahead waits until the others have caught up.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterator, Sequence

from dtctl.operations.logs import LogLines

_OVERHEAD_BYTES = 500
"""What any lines take in memory besides their bytes."""


class Merging:
    """`add` and `end` are called by the threads of the hosts, `all` by whoever reads. A context manager."""

    def __init__(self, hosts: Sequence[str], most_bytes: int) -> None:
        self._hosts = list(hosts)
        self._most_bytes = most_bytes
        self._waiting: dict[str, deque[LogLines]] = {host: deque() for host in hosts}
        self._ended: set[str] = set()
        self._bytes = 0
        self._bug: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()

    def __enter__(self) -> Merging:
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def add(self, host: str, lines: LogLines) -> None:
        """Returns when there is room for more. A host of which nothing is waiting may always add."""
        waiting = self._waiting[host]
        with self._changed:
            waiting.append(lines)
            self._bytes += len(lines.data) + _OVERHEAD_BYTES
            self._changed.notify_all()
            self._changed.wait_for(lambda: not waiting or self._bytes < self._most_bytes or self._closed)

    def end(self, host: str, bug: BaseException | None = None) -> None:
        """No more comes from there. A `bug` is raised in the thread that reads."""
        with self._changed:
            self._ended.add(host)
            self._bug = self._bug or bug
            self._changed.notify_all()

    def all(self) -> Iterator[LogLines]:
        """Until every host has ended."""
        heads: list[tuple[float, int, LogLines]] = []
        unheard = list(range(len(self._hosts)))
        while unheard or heads:
            for number in unheard:
                lines = self._next(self._hosts[number])
                if lines is not None:
                    heapq.heappush(heads, (lines.time, number, lines))
            unheard = []
            if heads:
                _, number, lines = heapq.heappop(heads)
                yield lines
                unheard = [number]

    def _next(self, host: str) -> LogLines | None:
        waiting = self._waiting[host]
        with self._changed:
            self._changed.wait_for(lambda: waiting or host in self._ended or self._bug)
            if self._bug is not None:
                raise self._bug
            if not waiting:
                return None
            lines = waiting.popleft()
            self._bytes -= len(lines.data) + _OVERHEAD_BYTES
            self._changed.notify_all()
            return lines
