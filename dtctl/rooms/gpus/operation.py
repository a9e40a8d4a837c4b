"""Asks hosts for their GPUs, and which of these are free."""

from __future__ import annotations

from collections.abc import Iterable

from dtctl.agent.records.vitals import USED_SHARE, Gpu
from dtctl.agent.rooms.gpus.records import GpusResult
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, ask_hosts
from dtctl.operations.run_record import RunRecord
from dtctl.transport.fanout import Outcomes
from dtctl.transport.seam import Transport


def gpus(record: RunRecord, transport: Transport, hosts: Iterable[str]) -> Outcomes[GpusResult]:
    """The answer of each of the hosts; none of them needs a run."""
    return ask_hosts(record, ImpatientTransport(transport, record), Request("gpus", GpusResult), hosts)


def is_free(gpu: Gpu) -> bool:
    """Whether nothing uses it. Memory counts also without a known user: a container may hide processes of its host."""
    return not gpu["lost"] and not gpu["users"] and gpu["used_bytes"] <= USED_SHARE * gpu["memory_bytes"]
