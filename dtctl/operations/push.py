"""Pushes the code or the data to the hosts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from dtctl.bundle import Bundle
from dtctl.model import Host
from dtctl.operations import sending
from dtctl.operations.client import Progress, Report, reporting_failure
from dtctl.operations.run_record import RunRecord
from dtctl.operations.up.readying import sent_bundle
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Transport


def push(
    record: RunRecord, bundle: Bundle, transport: Transport, report: Report, hosts: Sequence[str] | None = None
) -> Outcomes[int]:
    """The number of files that each host lacked, and the errors of the others. `hosts`: None means all."""

    def work(host: Host) -> int:
        report(Progress(host.name, "connect"))
        with closing(transport.open(host)) as session:
            sent = sent_bundle(record, session, sender, report)
        report(Progress(host.name, "prepared"))
        return sent

    with sending.sender(bundle, record) as sender:
        return fan_out(
            [record.hosts[name] for name in (record.hosts if hosts is None else hosts)], reporting_failure(work, report)
        )
