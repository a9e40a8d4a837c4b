"""The machine form of the output of `exec`."""

from __future__ import annotations

from typing import Any

from dtctl.agent.rooms.execute.records import ExecResult
from dtctl.render.machine import document
from dtctl.render.machine.document import picked
from dtctl.transport.fanout import Outcomes

MOST_OUTPUT = 1 << 20
"""The most bytes of each stream of a place that `exec` keeps: the last ones."""


class Outputs:
    """Collects the output of `exec`, by place and stream; of long output the end."""

    def __init__(self) -> None:
        self._data: dict[tuple[str, int], bytearray] = {}
        self._cut: set[tuple[str, int]] = set()

    def print(self, place: str, stream: int, data: bytes) -> None:
        """Does what OutputPrinter does; called by several threads, each of which has its own place."""
        kept = self._data.setdefault((place, 2 if stream == 2 else 1), bytearray())
        kept += data
        if len(kept) > MOST_OUTPUT:
            self._cut.add((place, 2 if stream == 2 else 1))
            del kept[:-MOST_OUTPUT]

    def document(self, outcome: Outcomes[ExecResult]) -> dict[str, Any]:
        return {
            "results": [
                {
                    "place": place,
                    **picked(done, "exit_code signal"),
                    "stdout": self.text(place, 1),
                    "stderr": self.text(place, 2),
                    "cut": any((place, stream) in self._cut for stream in (1, 2)),
                }
                for place, done in outcome.results.items()
            ],
            "errors": document.errors(outcome.errors),
        }

    def text(self, place: str, stream: int) -> str:
        return bytes(self._data.get((place, stream), b"")).decode("utf-8", "replace")
