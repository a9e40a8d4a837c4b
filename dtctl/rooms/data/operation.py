"""The data set of a cluster: which data belongs on which host, what is there, and its removal. `push.py` brings it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from dtctl.agent.rooms.data.records import DataDropped, DataDropResult, DataFacts, DataHeld
from dtctl.bundle import Bundle, Manifest
from dtctl.bundle.scanning import ScanReport, Unread
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError, UsageError
from dtctl.model import Host
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Progress, Report, Request, ask_hosts
from dtctl.operations.client.plausible import wrong
from dtctl.operations.run_record import RunRecord
from dtctl.operations.sending import DATA, scanned
from dtctl.plan.hosts import DataPlace, data_places
from dtctl.transport.fanout import Outcomes
from dtctl.transport.seam import Message, Transport

DataState = Literal["complete", "incomplete", "changed", "differs", "missing"]
QUIET_S = 120.0
"""How long a host may read files without progress."""
DROP_S = 600.0

_Share = tuple[int, int] | None


@dataclass(frozen=True)
class DataSet:
    """`bundle`: the content of the source; None: it is unknown."""

    cluster: Cluster
    places: tuple[DataPlace, ...]
    bundle: Bundle | None
    _parts: dict[_Share, Bundle] = field(default_factory=dict, compare=False)

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place.host for place in self.places))

    def only(self, *hosts: str) -> DataSet:
        """The data set for these hosts only."""
        return dataclasses.replace(self, places=tuple(place for place in self.places if place.host in hosts))

    def on(self, host: str) -> tuple[DataPlace, ...]:
        return tuple(place for place in self.places if place.host == host)

    def part(self, place: DataPlace) -> Bundle:
        """The files that belong on the host, and every directory, so that labels by directory are the same
        everywhere.
        """
        assert self.bundle is not None
        if place.share is None:
            return self.bundle
        if place.share not in self._parts:
            index, count = place.share
            whole = self.bundle.manifest
            part = Manifest(files=whole.files[index::count], links=(), dirs=whole.dirs)
            self._parts[place.share] = dataclasses.replace(self.bundle, manifest=part)
        return self._parts[place.share]

    def wanted(self, place: DataPlace) -> str | None:
        """The bundle id of what belongs on the host."""
        return None if self.bundle is None else self.part(place).id


def source_of(cluster: Cluster) -> Path:
    """The source of the data. Raises UsageError if the file names none."""
    if cluster.data.source is None:
        raise UsageError(
            f"{cluster.file} names no data that dtctl brings to the hosts",
            hint="data: {from: ~/datasets/digits}    and dirs: {data: /data/digits}, where it is to be on the hosts",
        )
    return cluster.data.source


def data_set(cluster: Cluster, report: ScanReport | None = None, *, read: bool = True) -> DataSet:
    """Raises PreflightError for a source that cannot be sent. No file is read without `read`: the bundle is then
    unknown if files have changed since the last push, and so it is for a source that is not on this machine.
    """
    source = cluster.data.source
    places = data_places(cluster)
    if source is None:
        return DataSet(cluster, (), None)
    if not read and not source.is_dir():
        return DataSet(cluster, places, None)
    try:
        bundle = scanned(cluster, DATA, report, read=read)
    except Unread:
        return DataSet(cluster, places, None)
    if cluster.data.shard != "none" and bundle.manifest.links:
        raise PreflightError(
            f"{source / bundle.manifest.links[0][0]} is a link, and links cannot be dealt out",
            hint="put the file in its place, or write data.shard: none",
        )
    return DataSet(cluster, places, bundle)


@dataclass(frozen=True)
class PlaceState:
    """The content of one data directory on a host."""

    place: DataPlace
    held: DataHeld
    state: DataState

    @property
    def right_files(self) -> int:
        return self.held["files"] - self.held["missing"] - self.held["changed"]


def state_of(held: DataHeld, wanted: str | None) -> DataState:
    """`wanted`: the bundle id of what belongs there; None: unknown."""
    if held["bundle"] is None:
        return "missing"
    if wanted not in (None, held["bundle"]):
        return "differs"
    if held["changed"]:
        return "changed"
    return "incomplete" if held["missing"] else "complete"


def status(record: RunRecord, data: DataSet, transport: Transport) -> Outcomes[Sequence[PlaceState]]:
    """The state of the data on each host, by the sizes and times of the files."""
    wanted = Request("data_status", DataFacts, _dirs(data), _check_held(data))
    return _states(data, ask_hosts(record, ImpatientTransport(transport, record), wanted, data.hosts))


def verify(record: RunRecord, data: DataSet, transport: Transport, report: Report) -> Outcomes[Sequence[PlaceState]]:
    """The state of the data on each host, by the contents of the files: the hosts read every byte."""

    def on_progress(host: Host, message: Message) -> None:
        report(Progress(host.name, "verify", message["done_bytes"], message["total_bytes"]))

    def check(host: Host, answer: DataFacts) -> None:
        _check_held(data)(host, answer)
        report(Progress(host.name, "prepared"))

    frames = {"progress": on_progress}
    wanted = Request("data_verify", DataFacts, _dirs(data), check, within_s=None, on_frame=frames, quiet_s=QUIET_S)
    return _states(data, ask_hosts(record, ImpatientTransport(transport, record), wanted, data.hosts))


def drop(record: RunRecord, data: DataSet, transport: Transport) -> Outcomes[Sequence[DataDropped]]:
    """Removes what pushes have written there."""

    def check(host: Host, answer: DataDropResult) -> None:
        _check_same(data.on(host.name), answer["at"])

    wanted = Request("data_drop", DataDropResult, _dirs(data), check, within_s=DROP_S)
    outcomes = ask_hosts(record, ImpatientTransport(transport, record), wanted, data.hosts)
    return Outcomes({host: answer["at"] for host, answer in outcomes.results.items()}, outcomes.errors)


def _dirs(data: DataSet) -> Callable[[Host], Mapping[str, Any]]:
    return lambda host: {"dirs": [place.directory for place in data.on(host.name)]}


def _check_held(data: DataSet) -> Callable[[Host, DataFacts], None]:
    return lambda host, answer: check_held(data.on(host.name), answer["at"])


def check_held(places: Sequence[DataPlace], answer: Sequence[DataHeld]) -> None:
    """Raises InvalidValue for an answer about other directories, or with impossible counts."""
    _check_same(places, answer)
    for one in answer:
        if one["missing"] + one["changed"] > one["files"]:
            raise wrong("at", f"no more than {one['files']} files", one["missing"] + one["changed"])


def _check_same(places: Sequence[DataPlace], answer: Sequence[DataHeld] | Sequence[DataDropped]) -> None:
    answered = [one["dir"] for one in answer]
    if answered != [place.directory for place in places]:
        raise wrong("at", "the directories that were asked for", answered[:3])


def _states(data: DataSet, outcomes: Outcomes[DataFacts]) -> Outcomes[Sequence[PlaceState]]:
    found = {
        host: [
            PlaceState(place, held, state_of(held, data.wanted(place)))
            for place, held in zip(data.on(host), answer["at"], strict=True)
        ]
        for host, answer in outcomes.results.items()
    }
    return Outcomes(dict(found), outcomes.errors)
