"""events.jsonl: a line for each transition on this host. A line's number is its index, for ever."""

from __future__ import annotations

import json

from . import paths
from .records import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping

_CHUNK = 1 << 16


class EventLog:
    """For the supervisor, which alone writes it. What a full disk does not take waits in memory, in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: List[bytes] = []
        self._starts = [0]
        """Where each line begins, and where the next one will."""
        self._scan()

    @property
    def count(self) -> int:
        """Of the lines in the file: an event that is not yet there has no index yet."""
        return len(self._starts) - 1

    def add(self, event: Mapping[str, object]) -> None:
        self._waiting.append(json.dumps(event).encode() + b"\n")
        self.write_waiting()

    def write_waiting(self) -> None:
        """Writes as much as the disk takes."""
        while self._waiting and self._append(self._waiting[0]):
            del self._waiting[0]

    def since(self, index: int, most: int = 100) -> List[Dict[str, object]]:
        """At most so many events, from the one with this index on. They are as they stand there: nothing is checked."""
        last = min(self.count, index + most)
        if index >= last:
            return []
        with open(self._path, "rb") as file:
            file.seek(self._starts[index])
            data = file.read(self._starts[last] - self._starts[index])
        return [_event(line) for line in data.split(b"\n")[: last - index]]

    def _append(self, line: bytes) -> bool:
        end = self._starts[-1]
        try:
            with open(self._path, "ab", buffering=0, opener=paths.private) as file:
                if file.tell() != end:
                    file.truncate(end)  # the part of a line that a full disk took, or that a kill has left
                if file.write(line) != len(line):
                    return False
        except OSError:
            return False
        self._starts.append(end + len(line))
        return True

    def _scan(self) -> None:
        try:
            with open(self._path, "rb") as file:
                offset = 0
                for chunk in iter(lambda: file.read(_CHUNK), b""):
                    at = chunk.find(b"\n")
                    while at >= 0:
                        self._starts.append(offset + at + 1)
                        at = chunk.find(b"\n", at + 1)
                    offset += len(chunk)
        except FileNotFoundError:
            pass  # nothing has happened yet


def _event(line: bytes) -> Dict[str, object]:
    """Empty for a line that something else has damaged, which keeps its number."""
    try:
        value = json_text.parse(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
