"""The effect of each fault on its run, as a row of the table in docs/faults.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
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
    """Times are in seconds since the fault; None if there was nothing to notice, to start or to recover from."""

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
    """The row for the events between two times."""
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


def write(path: Path, rows: Iterable[Row], keep: bool) -> None:
    """Replaces the table in the page. `keep`: except the rows of faults that were not tried now."""
    head = ("fault", "way", "noticed after", "recovered after", "steps lost", "restarts", "outcome")
    new = [row.cells() for row in rows]
    tried = {cells[:2] for cells in new}
    old = [cells for cells in read_table(path, BEGIN, END) if keep and cells[:2] not in tried]
    replace_table(path, BEGIN, END, head, sorted({*new, *old}, key=lambda cells: (cells[1], cells[0])))


def _seconds(value: float | None) -> str:
    """The time with two digits: more are chance."""
    if value is None:
        return "–"
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
