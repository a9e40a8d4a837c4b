"""What each fault did to its run, as a row of the table in docs/faults.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from tests.tables import read_table, replace_table

BEGIN, END = "<!-- the table is written by `make faults` -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Story:
    """The coordinator's own files, cluster.json and history.jsonl."""

    cluster: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    """Seconds are since the fault; None where there was nothing to notice, to begin or to recover from."""

    fault: str
    way: str
    noticed_s: float | None
    recovered_s: float | None
    steps_lost: int | None
    restarts: int
    outcome: str

    def cells(self) -> tuple[str, ...]:
        lost = "–" if self.steps_lost is None else str(self.steps_lost)
        numbers = (_seconds(self.noticed_s), _seconds(self.recovered_s), lost, str(self.restarts))
        return (self.fault, self.way, *numbers, self.outcome)


def measure(fault: str, way: str, struck: float, story: Story, until: float = inf) -> Row:
    """What happened between two moments."""
    incidents = [one for one in story.cluster["incidents"] if struck <= one["noticed"] < until]
    contacts = [line["time"] for line in story.history if line["kind"] == "contact" and struck <= line["time"] < until]
    noticed = [one["noticed"] for one in incidents] or contacts[:1]
    recovered = [one["recovered"] for one in incidents if one["recovered"]] or contacts[-1:]
    back = [max(0, one["step"] - one["back_to"]) for one in incidents if None not in (one["step"], one["back_to"])]
    return Row(
        fault,
        way,
        noticed_s=min(noticed) - struck if noticed else None,
        recovered_s=max(recovered) - struck if recovered else None,
        steps_lost=sum(back) if back else None,
        restarts=len(incidents),
        outcome=story.cluster["condition"]["type"],
    )


def summary(fault: str, way: str, began: float, story: Story) -> Row:
    """Of many faults: the middle of the times, the sum of the rest."""
    incidents = [one for one in story.cluster["incidents"] if one["noticed"] >= began]
    noticed = [one["noticed"] - one["ended"] for one in incidents]
    recovered = [one["recovered"] - one["ended"] for one in incidents if one["recovered"]]
    back = [max(0, one["step"] - one["back_to"]) for one in incidents if None not in (one["step"], one["back_to"])]
    return Row(
        fault,
        way,
        noticed_s=median(noticed) if noticed else None,
        recovered_s=median(recovered) if recovered else None,
        steps_lost=sum(back),
        restarts=len(incidents),
        outcome=story.cluster["condition"]["type"],
    )


def write(path: Path, rows: Iterable[Row], keep: bool) -> None:
    """Replaces the table in the page. `keep`: but for the rows of faults that were not tried now."""
    head = ("fault", "way", "noticed after", "recovered after", "steps lost", "restarts", "outcome")
    new = [row.cells() for row in rows]
    tried = {_fault_and_way(cells) for cells in new}
    old = [cells for cells in read_table(path, BEGIN, END) if keep and _fault_and_way(cells) not in tried]
    replace_table(path, BEGIN, END, head, sorted({*new, *old}, key=lambda cells: (cells[1], cells[0])))


def _fault_and_way(cells: Sequence[str]) -> tuple[str, str]:
    """A soak is the same one however many faults it had time for."""
    return re.sub(r"^\d+ (random faults) in \d+ minutes$", r"\1", cells[0]), cells[1]


def _seconds(value: float | None) -> str:
    """Two digits: more are chance."""
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
