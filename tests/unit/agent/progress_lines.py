"""Lines of progress of public programs, and what is to be read from each: data/progress_lines.txt."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ESCAPES = {"t": "\t", "r": "\r", "b": "\b", "e": "\x1b", "n": "\n"}


@dataclass(frozen=True)
class ProgressLine:
    text: str
    step: int | None = None
    total: int | None = None
    loss: str | None = None
    rate: float | None = None
    saved: int | None = None
    position: tuple[int | None, int | None, int | None, int | None] | None = None
    """The epoch and how many there are, the batch and how many there are."""


def _parse(line: str) -> ProgressLine:
    expected, _, text = line.partition(" >> ")
    values = {one[0]: one[1:] for one in expected.split()}
    step, _, total = values.get("s", "").partition("/")
    position = None
    if "p" in values:
        epoch, _, batch = values["p"].partition(":")
        numbers = [*epoch.partition("/")[::2], *batch.partition("/")[::2]]
        first, second, third, fourth = (int(one) if one else None for one in numbers)
        position = (first, second, third, fourth)
    return ProgressLine(
        re.sub(r"\\([trben])", lambda match: ESCAPES[match.group(1)], text),
        int(step) if step else None,
        int(total) if total else None,
        values.get("l"),
        float(values["r"]) if "r" in values else None,
        int(values["c"]) if "c" in values else None,
        position,
    )


PROGRESS_LINES = [
    _parse(line)
    for line in (Path(__file__).parent / "data" / "progress_lines.txt").read_text().split("\n")
    if line and not line.startswith("#")
]
