"""Pushes the code or the data to the hosts."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from dtctl.bundle import Bundle
from dtctl.model import Host
from dtctl.operations import sending
from dtctl.operations.client import Progress, Report, reporting_failure
from dtctl.operations.run_record import RunRecord
from dtctl.operations.up.readying import sent_bundle
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Transport

if TYPE_CHECKING:
    pass


def push(record: RunRecord, bundle: Bundle, transport: Transport, report: Report) -> Outcomes[int]:
    """The number of files that each host lacked, and the errors of the others."""

    def work(host: Host) -> int:
        report(Progress(host.name, "connect"))
        with closing(transport.open(host)) as session:
            sent = sent_bundle(record, session, sender, report)
        report(Progress(host.name, "prepared"))
        return sent

    with sending.sender(bundle, record) as sender:
        return fan_out(list(record.hosts.values()), reporting_failure(work, report))
