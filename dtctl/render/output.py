"""What a command that runs on hosts prints there."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from dtctl.render.terminal import console
from dtctl.render.terminal.safe import log_lines, one_line

_LONGEST = 65536
"""The most bytes of a line that are kept until it ends; a longer line is shown in pieces."""


class OutputPrinter:
    """Whole lines, so that places do not mix within a line; bytes as they come if there is one place.

    On a terminal lines are made safe, unless `raw`: elsewhere a program may be what reads them (`-- tar c . | tar x`).
    """

    def __init__(self, targets: Sequence[str], *, raw: bool = False) -> None:
        self._width = max((len(place) for place in targets), default=0)
        self._alone = len(targets) == 1
        self._raw = {stream: raw or not console.on_terminal(stderr=stream == 2) for stream in (1, 2)}
        self._rests: dict[tuple[str, int], bytes] = {}
        self._lock = threading.Lock()

    def print(self, place: str, stream: int, data: bytes) -> None:
        stream = 2 if stream == 2 else 1
        with self._lock:
            if self._alone and self._raw[stream]:
                return console.pass_on(data, stderr=stream == 2)
            *lines, rest = (self._rests.pop((place, stream), b"") + data).split(b"\n")
            *begun, self._rests[place, stream] = _cut(rest)
            return self._write(place, stream, [piece for line in lines for piece in _cut(line)] + begun)

    def finish(self) -> None:
        """Writes lines that were never ended."""
        for (place, stream), rest in self._rests.items():
            if rest:
                self._write(place, stream, [rest])

    def _write(self, place: str, stream: int, lines: list[bytes]) -> None:
        head = "" if self._alone else f"{one_line(place).ljust(self._width)} | "
        if self._raw[stream]:
            console.pass_on(b"".join(head.encode() + line + b"\n" for line in lines), stderr=stream == 2)
            return
        color = console.colored(stderr=stream == 2)
        shown = log_lines(b"".join(line + b"\n" for line in lines), color=color)
        console.put("".join(f"{head}{line}\n" for line in shown), stderr=stream == 2)


def _cut(line: bytes) -> list[bytes]:
    """In pieces, the last of which may be empty and the others not; where, depends on the line alone."""
    return [line[start : start + _LONGEST] for start in range(0, max(1, len(line)), _LONGEST)]
