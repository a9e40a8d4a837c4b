"""Removes the leftovers of dead runs on the hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dtctl.agent.records import answers
from dtctl.agent.records import gc as records
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Request, ask_hosts
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.run_record import RunRecord
from dtctl.transport.seam import Transport

_QUIET_S = 120.0
"""Orphans are given time to end, and a large directory takes time to remove; hosts report each step in between."""


_PATIENCE_S = 3600.0
"""The time limit in all: there may be much to remove."""


@dataclass(frozen=True)
class GcResult:
    remains: Mapping[str, records.GcResult]
    """Host -> what it has removed, or would remove."""
    errors: Mapping[str, DtctlError]
    written: tuple[Written, ...] = ()
    """Files that trainers wrote; they are removed if that was asked for."""
    kept: tuple[Written, ...] = ()
    """Such files that were kept."""

    @property
    def anything(self) -> bool:
        """Whether there is anything to remove."""
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
    outcomes = ask_hosts(record, ImpatientTransport(transport, record), request, record.hosts)
    reported = outcomes.results.items()
    return GcResult(
        outcomes.results,
        outcomes.errors,
        written=without_duplicates((host, one) for host, answer in reported for one in answer["written"]),
        kept=without_duplicates((host, one) for host, answer in reported for one in answer["kept"]),
    )


def is_nothing(found: records.GcResult) -> bool:
    """Whether a host has nothing to remove."""
    lists = (found["processes"], found["survivors"], found["runs"], found["bundles"], found["files"], found["written"])
    return not (any(lists) or found["environments"]) and not found["freed_bytes"]


@dataclass(frozen=True)
class Written:
    """Trainers' files in one directory, or in directories of the same path and size on several hosts."""

    cluster: str | None
    """The cluster; None: it is no longer known."""
    path: str
    files: int
    size_bytes: int
    """The size of each directory, in bytes."""
    hosts: tuple[str, ...]
    directories: int = 1
    """The number of directories: hosts that share their home directory have one."""


def without_duplicates(answer: Iterable[tuple[str, answers.Written]]) -> tuple[Written, ...]:
    """The files by directory; hosts that share one report the same."""
    hosts: dict[tuple[str | None, str, int, int], dict[str, str]] = {}
    for host, one in answer:
        same = (one["cluster"], one["path"], one["files"], one["size_bytes"])
        hosts.setdefault(same, {})[host] = one["id"]
    return tuple(
        Written(cluster, path, files, size_bytes, tuple(ids), len(set(ids.values())))
        for (cluster, path, files, size_bytes), ids in hosts.items()
    )
