"""Which run follows on one that has ended while its logs were followed."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from dtctl.errors import DtctlError
from dtctl.operations.history.record import RunRecord
from dtctl.operations.status import RunStatus, status
from dtctl.transport.seam import Transport

PATIENCE_S = 120.0
"""For a run that is about to begin where another was stopped for it: its hosts end the old one first."""

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Onward:
    """`record` None: the run for which the old one was stopped has not begun."""

    record: RunRecord | None


def made_room(ended: RunStatus) -> bool:
    """It was stopped for another run."""
    return any(fact["kind"] in ("makes_room", "replaced") for fact in ended.verdict.why)


def onward(
    ended: RunStatus,
    record: RunRecord,
    transport: Transport,
    *,
    wait: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Onward | None:
    """The run that the cluster has now; one for which the old one was stopped is waited for. None: there is none.

    `record`: how the cluster's hosts are reached.
    """
    deadline = now() + PATIENCE_S
    while True:
        found = _current(record, transport)
        if found is not None and found.run and found.run != ended.record.run and found.created > ended.record.created:
            return Onward(found)
        if not made_room(ended):
            return None
        if now() > deadline:
            return Onward(None)
        wait(_LOOK_EVERY_S)


def _current(record: RunRecord, transport: Transport) -> RunRecord | None:
    """None while no host tells of one: it may be about to begin."""
    try:
        return status(dataclasses.replace(record, run=None), transport).record
    except DtctlError:
        return None
