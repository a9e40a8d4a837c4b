"""Asks each host of a run once how it and its tasks do, and tells what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from dtctl.agent.records.vitals import DiagnoseResult
from dtctl.errors import DtctlError
from dtctl.operations.client.conversation import Conversations, Request, ask, knows_no_run
from dtctl.operations.client.plausible import check_run, check_tasks
from dtctl.operations.diagnosis.facts import Facts
from dtctl.operations.diagnosis.finding import findings
from dtctl.operations.status import RunStatus, request_of_status, status_of_hosts, told_by_coordinator

if TYPE_CHECKING:
    from pathlib import Path

    from dtctl.agent.records.answers import StatusResult
    from dtctl.bundle import Bundle
    from dtctl.model import Host
    from dtctl.operations.diagnosis.signature import Finding
    from dtctl.operations.history.record import RunRecord
    from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Diagnosis:
    """`found`: the most important first. `errors`: hosts that could not be asked, and why."""

    facts: Facts
    found: tuple[Finding, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)

    @property
    def status(self) -> RunStatus:
        return self.facts.status


def diagnose(record: RunRecord, transport: Transport) -> Diagnosis:
    """By one connection to each host, in which it tells its part of the run and then how it does."""
    with Conversations(record, transport, record.hosts) as hosts:
        told = hosts.ask(request_of_status(record))
        status = _status(record, transport, told, hosts.errors)
        with_run = [host for host, answer in told.items() if answer["run"] == status.record.run]
        found = hosts.ask(_request(status.record), with_run)
        errors = dict(hosts.errors)
    unasked = [host for host in status.record.hosts if host not in record.hosts and host not in status.errors]
    more = ask(status.record, transport, _request(status.record), unasked)
    scanned = cache(lambda: _scanned(record.file))
    facts = Facts(status, {**found, **more.results}, lambda path: code.left_out(path) if (code := scanned()) else None)
    errors = {**status.errors, **errors, **more.errors}
    return Diagnosis(facts, findings(facts), {host: why for host, why in errors.items() if not knows_no_run(why)})


def in_short(status: RunStatus) -> tuple[Finding, ...]:
    """What is wrong now, as far as nobody needs to be asked."""
    return tuple(one for one in findings(Facts(status)) if not one.seen.over)


def _status(
    record: RunRecord, transport: Transport, told: Mapping[str, StatusResult], errors: Mapping[str, DtctlError]
) -> RunStatus:
    """As the coordinator tells it where it answers, else as the hosts do."""
    for answer in told.values():
        if answer["coordination"] is not None and answer["inventory"] is not None:
            return told_by_coordinator(record.as_known(answer["inventory"]), answer)
    return status_of_hosts(record, transport, errors, told)


def _scanned(file: Path | None) -> Bundle | None:
    """The code by the cluster file as it reads now; None where that cannot be told."""
    from dtctl.config import load_cluster
    from dtctl.operations.up.local import scan_code

    try:
        return scan_code(load_cluster(file)) if file is not None else None
    except DtctlError:
        return None


def _request(record: RunRecord) -> Request[DiagnoseResult]:
    def check(host: Host, answer: DiagnoseResult) -> None:
        check_run(record.cluster, record.run, answer["run"])
        check_tasks("tasks", answer["tasks"], record.names_on(host.name))

    return Request("diagnose", DiagnoseResult, check=check)
