"""Refuses to start tasks that strangers could reach."""

from __future__ import annotations

from dtctl.config.ranges import fold
from dtctl.errors import PreflightError
from dtctl.operations.checks.checking import check
from dtctl.operations.checks.topic import Scene
from dtctl.operations.client.conversation import Report
from dtctl.operations.diagnosis.signature import Finding
from dtctl.operations.history.record import RunRecord
from dtctl.operations.networking import tasks
from dtctl.operations.networking.exposure import is_exposed
from dtctl.transport.fanout import Outcomes
from dtctl.transport.seam import Transport


def require_private(scene: Scene, record: RunRecord, transport: Transport, report: Report) -> None:
    """Raises PreflightError where a task's port is open to this machine, or may be to the internet.

    What was not tried counts as open: a host that cannot be asked is an error, too.
    """
    checked = check(scene, record, transport, report, (tasks.TOPIC,))
    if checked.errors:
        Outcomes({}, dict(checked.errors)).or_raise("look who reaches the ports")
    exposed = [one for one in checked.found if is_exposed(one)]
    if exposed:
        hosts = fold(dict.fromkeys(host for one in exposed for host in one.seen.hosts))
        raise PreflightError(
            f"strangers reach the ports of tasks on {hosts}, or may do so, and --require-private was given",
            detail="\n".join(_told(one) for one in exposed),
            hint="dtctl check --print-firewall nftables    prints rules that close them (or iptables, ufw)",
        )


def _told(finding: Finding) -> str:
    fields, hosts = finding.seen.fields, fold(finding.seen.hosts)
    ports = ", ".join(map(str, fields["ports"]))
    if finding.signature.name == "exposed":
        return f"port {ports} of {hosts} answered this machine ({fields['seen_from']}), which is none of the hosts"
    return f"{hosts} has {fields['address']}, an address of the internet, and port {ports} was not tried there"
