"""Brings the data set to the hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, TypeVar

from dtctl.agent.rooms.data.records import DataPushResult
from dtctl.bundle.sender import IN_MEMORY_BYTES, Sender
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import ConnectionLost, TransportError
from dtctl.model import Host, SshSettings
from dtctl.operations import sending
from dtctl.operations.client import Progress, Report, final, reporting_failure, request
from dtctl.operations.replace import Bring
from dtctl.operations.run_record import RunRecord
from dtctl.operations.up.readying import converse
from dtctl.plan.hosts import DataPlace, task_ports
from dtctl.rooms.data.operation import DataSet, data_set
from dtctl.rooms.data.relay import FeederAssignment, is_worthwhile
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import NamingTransport, Session

R = TypeVar("R")


_LEAST_BYTES = 4 << 20


RESUMED_AFTER_S: tuple[float, ...] = (1.0, 5.0, 15.0, 60.0)
"""The delay before a push to a host is resumed, after each lost connection."""


@dataclass(frozen=True)
class PushedData:
    """The result of a push to one directory."""

    place: DataPlace
    files: int
    answer: DataPushResult


def push_data(
    record: RunRecord, data: DataSet, transport: NamingTransport, report: Report, *, overwrite: bool
) -> Outcomes[Sequence[PushedData]]:
    """Sends each host the files that it lacks; a later push resumes what was cut off or interrupted. Where that is
    much, hosts that have it hand it to the others (docs/agent.md, "Data")."""
    shares = {place.share for place in data.places}
    room = max(_LEAST_BYTES, IN_MEMORY_BYTES // max(1, len(shares)))
    with ExitStack() as stack:
        senders = {
            place.share: stack.enter_context(sending.sender(data.part(place), record, room))
            for place in {place.share: place for place in data.places}.values()
        }
        relays = {share: _relay(record, data, sender, share, transport) for share, sender in senders.items()}

        def put(session: Session, host: Host, place: DataPlace) -> PushedData:
            sender, relay = senders[place.share], relays[place.share]
            asked = {"dir": place.directory, "bundle": sender.bundle.id, "overwrite": overwrite}
            session.send({**request(record, host, "data_push"), **asked, **relay.fields(host.name)})
            message = converse(session, sender, report, until="result", relay=relay)
            answer = final(record, session, "data_push", message, DataPushResult)
            relay.done(host.name, answer["port"])
            return PushedData(place, len(sender.bundle.manifest.files), answer)

        def work(host: Host) -> Sequence[PushedData]:
            report(Progress(host.name, "connect"))
            places = data.on(host.name)
            with ExitStack() as ending:
                for place in places:
                    ending.callback(relays[place.share].leave, host.name)
                session = ending.enter_context(closing(transport.open(host)))
                pushed = [put(session, host, place) for place in places]
                report(Progress(host.name, "prepared"))
                for place in places:
                    relays[place.share].stay(host.name)
            return pushed

        hosts = [record.route_to(name) for name in data.hosts]
        return fan_out(hosts, reporting_failure(_resuming(work, report), report))


def _relay(
    record: RunRecord, data: DataSet, sender: Sender, share: tuple[int, int] | None, transport: NamingTransport
) -> FeederAssignment:
    """A relay for the hosts that get this share, if it is worthwhile; else one for no host. One without an address is
    left out.
    """
    hosts = [record.route_to(place.host) for place in data.places if place.share == share]
    if data.cluster.data.relay == "never" or not is_worthwhile(sender.bundle.total_bytes, len(hosts)):
        hosts = []
    members = {}
    for host in hosts:
        address = host.address
        if address is None and isinstance(host.reach, SshSettings):
            address = transport.hostname(host.reach)
        if address is not None:
            members[host.name] = address, task_ports(data.cluster, host.name)
    return FeederAssignment(members)


def _resuming(work: Callable[[Host], R], report: Report) -> Callable[[Host], R]:
    """The same work, resumed after a lost connection. A host that cannot be reached at first is not waited for."""

    def resuming(host: Host) -> R:
        was_cut = False
        for pause_s in RESUMED_AFTER_S:
            try:
                return work(host)
            except TransportError as error:
                was_cut = was_cut or isinstance(error, ConnectionLost)
                if not was_cut:
                    raise
            report(Progress(host.name, "connect"))
            time.sleep(pause_s)
        return work(host)

    return resuming


def bring(cluster: Cluster, new: str, record: RunRecord, transport: NamingTransport, report: Report) -> None:
    """What the tasks of a host that takes them over read, while the run goes on; nothing where dtctl brings no data, or
    has none here.
    """
    source = cluster.data.source
    if record.is_local or source is None or not source.is_dir():
        return
    data = data_set(cluster).only(new)
    push_data(record, data, transport, report, overwrite=False).or_raise("bring the data")


if TYPE_CHECKING:
    _: Bring = bring
