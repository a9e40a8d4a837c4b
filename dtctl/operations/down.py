"""End the tasks of a run, and clear away what dtctl made for it, or what dead runs have left on the hosts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import field

from dtctl.agent.records import answers as records
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.client.conversation import Conversations, Request, ask, is_damaged
from dtctl.operations.client.persistent import PersistentTransport
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.operations.stop import (
    Before,
    OnStopping,
    StopOrder,
    StopResult,
    check_ended,
    listener,
    result_of,
    stop,
    unseen,
)
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class DownResult:
    stop: StopResult
    removed: Mapping[str, tuple[str, ...]]
    """Host -> ids of the runs that were removed there."""
    kept: tuple[Written, ...]
    """What the cluster's trainers wrote into their working directory."""
    unasked: Mapping[str, DtctlError] = field(default_factory=dict)
    """Hosts without a task that gave no answer: an earlier run may have left something there."""


def down(
    record: RunRecord,
    transport: Transport,
    order: StopOrder,
    report: OnStopping = unseen,
    before: Before | None = None,
) -> DownResult:
    """Stops everything, then clears the hosts on which nothing survived. `report` and `before` as for `stop`.

    Runs that are over go from hosts that have no task any more, too, unless the record is about one run.
    Each host has one connection, and all are opened while the coordinator is asked: some hosts are far.
    """
    with PersistentTransport(transport) as kept:
        kept.expect(record.routes_to(record.hosts)[0])
        return _down(record, kept, order, report, before)


def _down(
    record: RunRecord, transport: Transport, order: StopOrder, report: OnStopping, before: Before | None
) -> DownResult:
    stopped = stop(record, transport, tuple(record.roster), order, report, before)
    known = stopped.known or record
    unreachable = known.routes_to(known.unknown_hosts)[1]
    record = dataclasses.replace(known, run=record.run, hosts={**record.hosts, **known.hosts})
    with Conversations(record, transport, record.hosts) as conversations:
        unclear = {survivor.host for survivor in stopped.survivors}
        failed = {
            host for host, error in stopped.errors.items() if not is_damaged(error)
        }  # a damaged run can be removed
        clear = [host for host in record.hosts if host not in {*unclear, *failed, *stopped.absent}]
        answers = conversations.ask(_removal(record, order, report), clear)
        rest = result_of(record, conversations, answers.items())
    without_task = {name: host for name, host in known.others.items() if name not in record.hosts}
    left = _clear_others(dataclasses.replace(record, hosts=without_task), transport)
    return DownResult(
        stop=dataclasses.replace(
            stopped,
            stopped=tuple(dict.fromkeys((*stopped.stopped, *rest.stopped))),
            killed={**rest.killed, **stopped.killed},
            survivors=stopped.survivors + rest.survivors,
            errors={
                **{host: error for host, error in stopped.errors.items() if host not in answers},
                **rest.errors,
                **unreachable,
            },
        ),
        removed={
            **{host: tuple(answer["removed"]) for host, answer in answers.items()},
            **{
                host: tuple(run["run"] for run in found["runs"])
                for host, found in left.remains.items()
                if found["runs"]
            },
        },
        kept=(
            *without_duplicates((host, one) for host, answer in answers.items() for one in answer["kept"]),
            *left.kept,
        ),
        unasked=left.errors,
    )


def _clear_others(record: RunRecord, transport: Transport) -> GcResult:
    """On hosts that have no task of the cluster any more. A run that is live there belongs to another cluster file."""
    if record.run is not None or not record.hosts:
        return GcResult({}, {})
    return collect(record, transport, dry_run=False, every_cluster=False, over=True)


def _removal(record: RunRecord, order: StopOrder, report: OnStopping) -> Request[records.DownResult]:
    """Of the record's run, or of all that a host has of the cluster, whose tasks may have had any name."""

    def check(host: Host, answer: records.DownResult) -> None:
        for run in answer["removed"]:
            check_run(record.cluster, record.run, run, "removed")
        for one in answer["kept"]:
            if one["cluster"] not in (record.cluster, None):
                raise wrong("kept", f"that of {record.cluster}", one["cluster"])
        if record.run is not None:
            check_ended(answer, record.names_on(host.name))

    frames = listener(record, report)
    return Request("down", records.DownResult, lambda _: order.fields(), check, order.patience_s(record), frames)


_QUIET_S = 120.0
"""Orphans are given time to end, and a large directory takes time to remove; hosts report each step in between."""
_PATIENCE_S = 3600.0
"""In all: there may be much to remove."""


@dataclass(frozen=True)
class GcResult:
    remains: Mapping[str, records.GcResult]
    """What each host has removed, or would remove."""
    errors: Mapping[str, DtctlError]
    written: tuple[Written, ...] = ()
    """What trainers wrote, and what goes if that was asked for."""
    kept: tuple[Written, ...] = ()
    """The same, left alone."""

    @property
    def anything(self) -> bool:
        """There is something to remove."""
        return bool(self.written) or not all(map(is_nothing, self.remains.values()))

    @property
    def processes(self) -> int:
        return sum(len(one["processes"]) for one in self.remains.values())


def collect(
    record: RunRecord,
    transport: Transport,
    *,
    dry_run: bool,
    every_cluster: bool,
    written: bool = False,
    over: bool = False,
) -> GcResult:
    """Asks every host of the record to remove what it can prove to be dtctl's own and dead; `dry_run` only looks.

    `written`: with what trainers wrote into the working directories of clusters that have no run there any more;
    `over`: with every run that is over, the newest too.
    """

    def check(host: Host, answer: records.GcResult) -> None:
        if answer["dry_run"] != dry_run:
            raise wrong("dry_run", str(dry_run).lower(), answer["dry_run"])
        for run in answer["runs"] if over else ():
            check_run(record.cluster, None, run["run"], "runs")
        for one in (*answer["written"], *answer["kept"]):
            if not every_cluster and one["cluster"] != record.cluster:
                raise wrong("written", f"that of {record.cluster}", one["cluster"])

    fields = {"run": None, "dry_run": dry_run, "all": every_cluster, "written": written, "over": over}
    on_frame = {"progress": lambda host, message: None}
    request = Request("gc", records.GcResult, lambda _: fields, check, _PATIENCE_S, on_frame, _QUIET_S)
    outcomes = ask(record, transport, request, record.hosts)
    reported = outcomes.results.items()
    return GcResult(
        outcomes.results,
        outcomes.errors,
        written=without_duplicates((host, one) for host, answer in reported for one in answer["written"]),
        kept=without_duplicates((host, one) for host, answer in reported for one in answer["kept"]),
    )


def is_nothing(found: records.GcResult) -> bool:
    """Of one host."""
    lists = (found["processes"], found["survivors"], found["runs"], found["bundles"], found["files"], found["written"])
    return not (any(lists) or found["environments"]) and not found["freed_bytes"]


@dataclass(frozen=True)
class Written:
    """In one directory, or in directories of the same path and size on several hosts."""

    cluster: str | None
    """None: it is unknown by now."""
    path: str
    files: int
    size_bytes: int
    """In each directory."""
    hosts: tuple[str, ...]
    directories: int = 1
    """How many there are: hosts that share their home directory have one."""


def without_duplicates(answer: Iterable[tuple[str, records.Written]]) -> tuple[Written, ...]:
    """By directory; hosts that share one have named it all."""
    hosts: dict[tuple[str | None, str, int, int], dict[str, str]] = {}
    for host, one in answer:
        same = (one["cluster"], one["path"], one["files"], one["size_bytes"])
        hosts.setdefault(same, {})[host] = one["id"]
    return tuple(
        Written(cluster, path, files, size_bytes, tuple(ids), len(set(ids.values())))
        for (cluster, path, files, size_bytes), ids in hosts.items()
    )
