"""Log lines for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dtctl.render.words import iso_utc

if TYPE_CHECKING:
    from dtctl.operations.logs import LogLines
    from dtctl.operations.logs.saving import SavedLog


def logs(lines: LogLines) -> Iterator[dict[str, Any]]:
    """An object a line. `time`: not after it, and not much before; of a progress bar the text is its last state."""
    head = {"task": str(lines.task), "attempt": lines.attempt, "time": iso_utc(lines.time)}
    for line in lines.data.decode("utf-8", "replace").removesuffix("\n").split("\n"):
        yield {**head, "text": line.rstrip("\r").rpartition("\r")[2]}


def saved(one: SavedLog) -> dict[str, Any]:
    return {"task": str(one.task), "attempt": one.attempt, "file": str(one.path), "sizeBytes": one.size_bytes}
