"""What commands on hosts print, line by line, each with the name of its place."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence


class OutputPrinter:
    """Bytes as they come if there is one place; else whole lines, so that places do not mix within a line."""

    def __init__(self, places: Sequence[str]) -> None:
        self._width = max((len(place) for place in places), default=0)
        self._alone = len(places) == 1
        self._rests: dict[tuple[str, int], bytes] = {}
        self._lock = threading.Lock()

    def print(self, place: str, stream: int, data: bytes) -> None:
        with self._lock:
            if self._alone:
                return _write(stream, data)
            *lines, rest = (self._rests.pop((place, stream), b"") + data).split(b"\n")
            self._rests[place, stream] = rest
            return _write(stream, b"".join(self._head(place) + line + b"\n" for line in lines))

    def finish(self) -> None:
        """Writes lines that were never ended."""
        for (place, stream), rest in self._rests.items():
            if rest:
                _write(stream, self._head(place) + rest + b"\n")

    def _head(self, place: str) -> bytes:
        return f"{place.ljust(self._width)} | ".encode()


def _write(stream: int, data: bytes) -> None:
    target = sys.stderr.buffer if stream == 2 else sys.stdout.buffer
    target.write(data)
    target.flush()
