"""history.jsonl, in the order in which the coordinator learnt it."""

from __future__ import annotations

import json

from ..records.kinds import made
from ..records.reasons import because, fact
from ..records.whole_run import Event, HistoryEvent
from ..run.runfiles import EventLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, Iterable, Iterator, Optional, Tuple


BURST_BYTES = 4 << 20
"""Some 20,000 transitions, as of a host with many tasks that was away for a day."""

REFILL_BYTES_S = 512.0
"""Two or three transitions a second, for ever: more than any back-off allows a task that fails on and on."""

CONTACT_BURST_BYTES = 64 << 10
CONTACT_REFILL_BYTES_S = 8.0
"""Some 300 lines about a host's own connection, and then one every half a minute: no more is of use to anybody."""

MOST_HOST_BYTES = 16 << 20
"""What one host may take of the history in the whole run, so that the run's hosts bound its size."""

REPORT_S = 60.0
"""How soon the number of lines beyond the quota is recorded; each time after twice as long a wait as before."""
SELDOM_S = 86400.0


class Quota:
    """How much one host may write into what belongs to all. `now` is the monotonic clock.

    `used_bytes`: what it has written so far.
    """

    def __init__(
        self, now: float, burst_bytes: int = BURST_BYTES, refill_bytes_s: float = REFILL_BYTES_S, used_bytes: int = 0
    ) -> None:
        self._burst = burst_bytes
        self._refill = refill_bytes_s
        self._left = MOST_HOST_BYTES - used_bytes
        self._room: float = burst_bytes
        self._filled = now
        self._excess = 0
        self._report_s = REPORT_S
        self._report_at = now

    def takes(self, size: int, now: float) -> bool:
        """Whether so many bytes more are let in; if not, they are counted as one."""
        self._room = min(self._burst, self._room + (now - self._filled) * self._refill)
        self._filled = now
        if size > self._room or size > self._left:
            self._excess += 1
            return False
        self._room -= size
        self._left -= size
        return True

    def left_out(self, now: float) -> int:
        """How many were not let in since this was asked last; 0 also while it is too early to record it again."""
        if not self._excess or now < self._report_at:
            return 0
        count, self._excess = self._excess, 0
        self._report_at = now + self._report_s
        self._report_s = min(2 * self._report_s, SELDOM_S)
        return count


class History:
    """The run's history.jsonl. It knows the events that it has of each host by their indexes in events.jsonl there."""

    def __init__(self, path: str) -> None:
        self._log = EventLog(path)
        self._next = self._log.count
        self._received: Dict[str, int] = {}
        self._quotas: Dict[Tuple[str, str], Quota] = {}
        """Quotas by host and kind of line."""
        self._used: Dict[Tuple[str, str], int] = {}
        for line in self._log.records(HistoryEvent):
            if line is None or not line["host"]:
                continue
            key = line["host"], line["kind"]
            self._used[key] = self._used.get(key, 0) + len(json.dumps(line))
            if line["kind"] == "task" and line["index"] is not None:
                self._received[line["host"]] = line["index"] + 1

    @property
    def count(self) -> int:
        """Lines on the disk."""
        return self._log.count

    def lines(self, begin: int, most: int) -> Iterator[HistoryEvent]:
        """The lines on the disk, without damaged ones."""
        return (line for line in self._log.records(HistoryEvent, begin, most) if line is not None)

    def received(self, host: str) -> int:
        """How many of the host's events are held: the index of the first that is not."""
        return self._received.get(host, 0)

    def add(self, line: HistoryEvent) -> None:
        self._log.add({**line, "n": self._next})
        self._next += 1

    def add_own(self, line: HistoryEvent, now: float) -> None:
        """A line of the coordinator's own. Those about a host's connection, which it makes as often as it likes, are
        bounded as its events are."""
        host, kind = line["host"], line["kind"]
        if kind != "contact" or not host:
            self.add(line)
            return
        quota = self._quota(host, kind, now)
        if quota.takes(len(json.dumps(line)), now):
            self.add(line)
        self._report(host, quota, now, line["time"])

    def _quota(self, host: str, kind: str, now: float) -> Quota:
        key = host, kind
        if key not in self._quotas:
            burst, refill = BURST_BYTES, REFILL_BYTES_S
            if kind == "contact":
                burst, refill = CONTACT_BURST_BYTES, CONTACT_REFILL_BYTES_S
            self._quotas[key] = Quota(now, burst, refill, self._used.get(key, 0))
        return self._quotas[key]

    def _report(self, host: str, quota: Quota, now: float, wall: float) -> None:
        left_out = quota.left_out(now)
        if left_out:
            why = because([fact("events_left_out", host=host, count=left_out)])
            self.add(made(HistoryEvent, time=wall, kind="contact", host=host, **why))

    def add_events(
        self, host: str, begin: int, events: Iterable[Optional[Event]], now: float, wall: float, ahead_s: float
    ) -> None:
        """Events of a host, from index `begin` on; those that are held already are passed over.

        `ahead_s`: by how much the clock of the history is ahead of the host's.

        Those beyond the host's quota are counted, and their number is recorded: no host fills the disk of another.
        """
        quota = self._quota(host, "task", now)
        for index, event in enumerate(events, begin):
            if index != self.received(host):
                continue
            self._received[host] = index + 1
            if event is not None:
                line: HistoryEvent = {**event, "n": 0, "kind": "task", "host": host, "index": index, "by": ""}
                line["time"] = max(0.0, line["time"] + ahead_s)
                if quota.takes(len(json.dumps(line)), now):
                    self.add(line)
        self._report(host, quota, now, wall)

    def write_waiting(self) -> None:
        """Writes what a full disk did not take before."""
        self._log.write_waiting()
