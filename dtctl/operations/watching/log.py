"""The log of one task as it is written, from its end on, for as long as somebody looks at it."""

from __future__ import annotations

from collections.abc import Generator

from dtctl.model import TaskId
from dtctl.operations.client.streams import Away, Back, Streams
from dtctl.operations.history.record import RunRecord
from dtctl.operations.logs import LogLines, LogRequest
from dtctl.operations.logs.following import LogStream
from dtctl.transport.seam import Transport

TICK_S = 0.1


def follow_log(
    record: RunRecord, transport: Transport, task: TaskId, lines: int
) -> Generator[LogLines | Away | Back | None, None, None]:
    """Endless: an attempt that has ended may be followed by another. Raises TransportError for an unknown host."""
    host = record.way_to(record.roster[task])
    with Streams(transport) as streams:
        streams.begin(host, LogStream(record, host, LogRequest((task,), lines=lines), streams).converse)
        for told in streams.all(TICK_S):
            if told is None or isinstance(told, LogLines | Away | Back):
                yield told
