"""Secrets' values, replaced wherever something is shown."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List

_SHORTEST_LINE = 8


class Masks:
    """Replaces values by `***`, longer ones first; of a value of several lines each longer line, too."""

    def __init__(self, values: Iterable[str]) -> None:
        self._values = sorted({part for value in values for part in _parts(value)}, key=lambda part: (-len(part), part))
        self._pattern = re.compile(b"|".join(map(re.escape, self._values))) if self._values else None

    def hide(self, data: bytes) -> bytes:
        return self._pattern.sub(b"***", data) if self._pattern else data

    def hide_lines(self, data: bytes) -> bytes:
        """As `hide` of each line by itself: it has as many lines as before."""
        return b"\n".join(map(self.hide, data.split(b"\n"))) if self._pattern else data

    def cut(self, data: bytes) -> int:
        """Where the end of `data` may be cut without cutting through a value that continues after it."""
        longest = len(self._values[0]) if self._values else 0
        for start in range(max(1, len(data) - longest + 1), len(data)):
            if any(value.startswith(data[start:]) for value in self._values):
                return start
        return len(data)


def _parts(value: str) -> List[bytes]:
    whole = value.encode("utf-8", "surrogateescape")
    lines = [line.strip() for line in whole.splitlines()]
    return [part for part in {whole, *(line for line in lines if len(line) >= _SHORTEST_LINE)} if part]
