"""Bring the code to the hosts, and nothing else."""

from __future__ import annotations

from contextlib import closing

from dtctl.agent.records.answers import PushResult
from dtctl.bundle import Bundle, Sender
from dtctl.model import Host
from dtctl.operations.client.conversation import Progress, Report, final, reporting_failure, request
from dtctl.operations.run_record import RunRecord
from dtctl.operations.up.readying import converse
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Transport


def push(record: RunRecord, bundle: Bundle, transport: Transport, report: Report) -> Outcomes[int]:
    """How many files each host lacked; the others could not be reached or written to."""

    def work(host: Host) -> int:
        report(Progress(host.name, "connect"))
        with closing(transport.open(host)) as session:
            session.send({**request(record, host, "push"), "bundle": bundle.id})
            message = converse(session, sender, report, until="result")
            sent = final(session, "push", message, PushResult)["sent_files"]
        report(Progress(host.name, "prepared"))
        return sent

    with Sender(bundle) as sender:
        return fan_out(list(record.hosts.values()), reporting_failure(work, report))
