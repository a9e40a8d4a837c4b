"""The coordinator, wherever the hosts say that it is: the cluster file may have changed, or a host was replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dtctl.operations.asking.conversation import Request
from dtctl.operations.asking.coordinator import CoordinatorAway, First, R, ask_coordinator
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.status import status_of_hosts
from dtctl.transport.seam import Transport


def ask_wherever_it_is(
    record: RunRecord,
    transport: Transport,
    wanted: Callable[[RunRecord, Mapping[str, R]], Request[R]],
    first: First | None = None,
) -> tuple[RunRecord, R, Mapping[str, R]]:
    """The coordinator's answer, the record by which it was found, and what another host has done on the way there.

    `wanted` is given that as well; `first` is asked of each before. Raises CoordinatorAway with what hosts know, and
    have done.
    """
    try:
        return record, ask_coordinator(record, transport, wanted(record, {}), first), {}
    except CoordinatorAway as away:
        known = status_of_hosts(record, transport, away.unreachable).record
        if known.coordinator == record.coordinator:
            raise CoordinatorAway(away.host, away.cause, known, away.own) from away
        try:
            return known, ask_coordinator(known, transport, wanted(known, away.own), first), away.own
        except CoordinatorAway as second:
            raise CoordinatorAway(second.host, second.cause, known, {**away.own, **second.own}) from second
