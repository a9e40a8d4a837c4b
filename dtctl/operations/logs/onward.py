"""Which run follows on one that has ended while its logs were followed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from dtctl.errors import DtctlError
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.status import RunStatus, status
from dtctl.transport.seam import Transport

PATIENCE_S = 120.0
"""For a run that is about to begin where another was stopped for it: its hosts end the old one first."""

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Onward:
    """`record` None: the run that was to replace the old one, `run`, has not begun."""

    run: str
    record: RunRecord | None


def replaced_by(ended: RunStatus) -> str | None:
    """The run that it was stopped for."""
    return next((str(fact["run"]) for fact in ended.verdict.why if fact["kind"] == "replaced"), None)


def onward(
    ended: RunStatus,
    record: RunRecord,
    transport: Transport,
    *,
    wait: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Onward | None:
    """The run that the cluster has now; one by which the old one was replaced is waited for. None: there is none.

    `record`: how the cluster's hosts are reached.
    """
    awaited = replaced_by(ended)
    deadline = now() + PATIENCE_S
    while True:
        found = _current(record, transport)
        if found is not None and found.run and found.run != ended.record.run and found.created > ended.record.created:
            return Onward(found.run, found)
        if awaited is None:
            return None
        if now() > deadline:
            return Onward(awaited, None)
        wait(_LOOK_EVERY_S)


def _current(record: RunRecord, transport: Transport) -> RunRecord | None:
    """None while no host tells of one: it may be about to begin."""
    try:
        return status(dataclasses.replace(record, run=None), transport).record
    except DtctlError:
        return None
