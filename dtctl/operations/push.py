"""Bring the code to the hosts, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtctl.agent.records import answers
from dtctl.bundle import Bundle, Sender
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.client.conversation import Progress, Report, final, request, telling
from dtctl.operations.history.record import RunRecord
from dtctl.operations.up.readying import converse
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class PushResult:
    bundle: str
    sent_files: Mapping[str, int]
    """Host -> how many files it lacked."""
    errors: Mapping[str, DtctlError]


def push(record: RunRecord, bundle: Bundle, transport: Transport, report: Report) -> PushResult:
    """Hosts that could not be reached or written to are in `errors`; the others have the code."""

    def work(host: Host) -> int:
        report(Progress(host.name, "connect"))
        session = transport.open(host)
        try:
            session.send({**request(record, host, "push"), "bundle": bundle.id})
            message = converse(session, sender, report, until="result")
            sent = final(session, "push", message, answers.PushResult)["sent_files"]
        finally:
            session.close()
        report(Progress(host.name, "prepared"))
        return sent

    with Sender(bundle) as sender:
        outcomes = fan_out(list(record.hosts.values()), telling(work, report))
    return PushResult(bundle.id, outcomes.results, outcomes.errors)
