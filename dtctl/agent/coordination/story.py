"""history.jsonl: the run's story, in the order in which the coordinator learnt it."""

from __future__ import annotations

from ..event_log import EventLog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Sequence

_BATCH = 1000


class Story:
    """Also knows which events of each host it holds, by their indexes in that host's events.jsonl."""

    def __init__(self, path: str) -> None:
        self._log = EventLog(path)
        self._next = self._log.count
        self._received: Dict[str, int] = {}
        for begin in range(0, self._log.count, _BATCH):
            for line in self._log.since(begin, _BATCH):
                if line.get("kind") == "task":
                    self._received[line["host"]] = line["index"] + 1

    def received(self, host: str) -> int:
        """How many of the host's events are held: the index of the first that is not."""
        return self._received.get(host, 0)

    def add(self, line: Mapping[str, Any]) -> None:
        self._log.add(dict(line, n=self._next))
        self._next += 1

    def add_events(self, host: str, begin: int, events: Sequence[Mapping[str, Any]]) -> None:
        """Events of a host, from index `begin` on; those that are held already are passed over."""
        for index, event in enumerate(events, begin):
            if index == self.received(host):
                self._received[host] = index + 1
                self.add(dict(event, kind="task", host=host, index=index, by=""))

    def write_waiting(self) -> None:
        """Writes what a full disk did not take before."""
        self._log.write_waiting()
