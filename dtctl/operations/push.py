"""Bring the code to the hosts, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dtctl.bundle import Bundle, Sender
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.conversation import Progress, Report, request
from dtctl.operations.record import RunRecord
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import Message, Session, Transport


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
            return int(converse(session, sender, report)["sent_files"])
        finally:
            session.close()

    with Sender(bundle) as sender:
        outcomes = fan_out(list(record.hosts.values()), work)
    return PushResult(bundle.id, outcomes.results, outcomes.errors)


def converse(session: Session, sender: Sender | None, report: Report) -> Message:
    """Answers what the agent needs and passes on its progress, until it says something else."""
    host = session.host.name
    while (message := session.receive()).type in ("need", "progress"):
        if message.type == "progress":
            fields = message.fields
            report(
                Progress(
                    host,
                    fields["phase"],
                    fields.get("done_bytes", 0),
                    fields.get("total_bytes", 0),
                    fields.get("text") or message.payload.decode("utf-8", "replace"),
                )
            )
        elif sender is not None:
            sender.serve(session, message, lambda name, done, total: report(Progress(name, "send", done, total)))
    return message
