"""The coordinator, wherever the hosts say that it is: the cluster file may have changed, or a host was replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from dtctl.operations.asking.conversation import Request
from dtctl.operations.asking.coordinator import CoordinatorAway, ask_coordinator
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.status import status_of_hosts
from dtctl.transport.seam import Transport

R = TypeVar("R")


def ask_wherever_it_is(
    record: RunRecord, transport: Transport, wanted: Callable[[RunRecord], Request[R]]
) -> tuple[RunRecord, R]:
    """The coordinator's answer, and the record by which it was found. Raises CoordinatorAway with what hosts know."""
    try:
        return record, ask_coordinator(record, transport, wanted(record))
    except CoordinatorAway as away:
        known = status_of_hosts(record, transport, away.unreachable).record
        if known.coordinator == record.coordinator:
            raise CoordinatorAway(away.host, away.cause, known) from away
        try:
            return known, ask_coordinator(known, transport, wanted(known))
        except CoordinatorAway as second:
            raise CoordinatorAway(second.host, second.cause, known) from second
