"""events.jsonl: a line for each transition on this host. A line's number is its index, for ever."""

from __future__ import annotations

import json
import os
from contextlib import suppress

from ..host import files
from ..records import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping

_CHUNK = 1 << 16
_MOST_BYTES = 256 * 1024 * 1024
_MOST_LINES = 1_000_000


class EventLog:
    """Written by the supervisor alone. Lines that do not fit on a full disk wait in memory, in order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._waiting: List[bytes] = []
        self._starts = [0]
        """Where each line begins, and where the next one will."""
        self._scan()

    @property
    def count(self) -> int:
        """How many lines the file has: an event that is not yet in it has no index yet."""
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
        lines = self._read(self._starts[index], self._starts[last]).split(b"\n")
        lines += [b""] * (last - index)  # for those that somebody has cut off
        return [_event(line) for line in lines[: last - index]]

    def _read(self, begin: int, end: int) -> bytes:
        try:
            opened = files.descriptor(self._path)
        except OSError:
            return b""
        try:
            return files.read_at(opened, begin, end - begin)
        finally:
            os.close(opened)

    def _append(self, line: bytes) -> bool:
        end = self._starts[-1]
        try:
            with open(self._path, "ab", buffering=0, opener=files.private) as file:
                if file.tell() != end:
                    file.truncate(end)  # the part of a line that a full disk took, or that a kill has left
                if file.write(line) != len(line):
                    return False
        except OSError:
            return False
        self._starts.append(end + len(line))
        return True

    def _scan(self) -> None:
        """Moves away whatever cannot be an event log, and begins a new one."""
        try:
            if not self._find_lines():
                raise files.Unfit(self._path, "is too large")
        except FileNotFoundError:
            pass  # nothing has happened yet
        except files.Unfit:
            self._starts = [0]
            with suppress(OSError):  # then it is written over
                os.rename(self._path, "%s.damaged-%s" % (self._path, os.urandom(4).hex()))

    def _find_lines(self) -> bool:
        """False when there are more than can be."""
        opened = files.descriptor(self._path)
        try:
            offset = 0
            while offset < _MOST_BYTES and len(self._starts) <= _MOST_LINES:
                chunk = os.pread(opened, _CHUNK, offset)
                if not chunk:
                    return True
                at = chunk.find(b"\n")
                while at >= 0:
                    self._starts.append(offset + at + 1)
                    at = chunk.find(b"\n", at + 1)
                offset += len(chunk)
            return False
        finally:
            os.close(opened)


def _event(line: bytes) -> Dict[str, object]:
    """Empty for a line that something else has damaged, which keeps its number."""
    try:
        value = json_text.parse(line)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
