"""The report of a run again and again, for those who look at it as it grows: each host is asked over one connection.

Nothing is asked but what `gather` asks, in the same way; what has not changed is not asked for again.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from dtctl.errors import DtctlError
from dtctl.operations.client.kept import Kept
from dtctl.operations.events import Story, read_events
from dtctl.operations.history.record import RunRecord
from dtctl.operations.metrics import Metrics, read_metrics
from dtctl.operations.report.gathering import LINES, POINTS, Noting, put_together
from dtctl.operations.report.tree import Report
from dtctl.operations.status import RunStatus, status
from dtctl.transport.seam import Transport

SCALARS_EVERY_S = 10.0
SCALARS_SHARE = 0.05
"""Of the time, for reading scalars: each host looks through its event files."""


class Following:
    """A context manager: at its end its connections are closed."""

    def __init__(self, record: RunRecord, transport: Transport, environ: Mapping[str, str]) -> None:
        self._record = record
        self._environ = environ
        self._noting = Noting(transport)
        self._kept = Kept(self._noting)
        self._story = Story(())
        self._told_by = ""
        """The host whose coordinator tells the story."""
        self._scalars = Metrics(None, (), {})
        self._next_scalars = 0.0
        self._was_over = False

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.__exit__()

    def look(self) -> Report:
        """How the run stands now. Raises DtctlError where no host says anything of it."""
        found = status(self._record, self._kept)
        if found.time:
            self._record = found.record
            self._hear_story()
            self._read_scalars(hurry=is_over(found) and not self._was_over)
            self._was_over = is_over(found)
        return put_together(found, self._story, self._scalars, self._noting.facts, self._environ)

    def _hear_story(self) -> None:
        """What is new of it; where hosts tell it in the coordinator's place, all of it."""
        record, known = self._record, self._story.lines
        goes_on = bool(known) and self._story.away is None and self._told_by == record.coordinator
        begin = known[-1]["n"] + 1 if goes_on else None
        try:
            told = read_events(record, self._kept, last=LINES, begin=begin)
        except DtctlError as error:
            self._story = dataclasses.replace(self._story, errors={record.coordinator: error})
            return
        new = (*known, *told.lines)[-LINES:] if goes_on and told.away is None else told.lines
        self._story, self._told_by = Story(new, told.errors, told.away), record.coordinator

    def _read_scalars(self, *, hurry: bool) -> None:
        """Those of a host that gives no answer stay as they were."""
        began = time.monotonic()
        if began >= self._next_scalars or hurry:
            told = read_metrics(self._record, self._kept, [], points=POINTS)
            left = [one for one in self._scalars.series if one.host in told.errors]
            self._scalars = dataclasses.replace(told, series=(*told.series, *left))
            took = time.monotonic() - began
            self._next_scalars = began + max(SCALARS_EVERY_S, took / SCALARS_SHARE)


def is_over(found: RunStatus) -> bool:
    """Nothing more will happen to the run, as far as its coordinator tells."""
    return found.coordination is not None and found.is_over
