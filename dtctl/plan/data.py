"""Which directory of data each task reads, and which of the files belong there."""

from __future__ import annotations

from dataclasses import dataclass

from dtctl.agent.records.values import is_storage_url
from dtctl.config.cluster import Cluster
from dtctl.config.strategies import KVSTORE_JOBS, PS, Strategy, strategy_of, trainers
from dtctl.model import CHOSEN_PORT, Host, TaskId
from dtctl.plan.hosts import directories

WHOLE = "all"
"""The directory of those that read all, where the files are dealt out."""


@dataclass(frozen=True, order=True)
class DataPlace:
    """A directory on a host, with marks. `share`: an index and how many there are; None: all files."""

    host: str
    directory: str
    share: tuple[int, int] | None = None


def readers(cluster: Cluster) -> tuple[TaskId, ...]:
    """The tasks whose hosts get data."""
    jobs = cluster.data.jobs
    serving = (PS, *KVSTORE_JOBS)
    return tuple(task for task in cluster.tasks() if (task.job not in serving if jobs is None else task.job in jobs))


def dealt(cluster: Cluster) -> tuple[TaskId, ...]:
    """The tasks among which the files are dealt out, in this order; none where each reads all."""
    if cluster.data.source is None or cluster.data.shard == "none":
        return ()
    # A coordinating chief reads no data of its own: its share would not be trained on.
    idle = cluster.lead if strategy_of(cluster) is Strategy.PS_STRATEGY else None
    wanted = readers(cluster)
    return tuple(task for task in trainers(cluster) if task in wanted and task != idle)


def data_place(cluster: Cluster, host: Host, task: TaskId, sharers: tuple[TaskId, ...]) -> DataPlace | None:
    """Where a task reads on a host; None where no directory is named, or a storage URL. `sharers`: those of `dealt`."""
    base = directories(cluster, host).get("data")
    if base is None or is_storage_url(base):
        return None
    if not sharers:
        return DataPlace(host.name, base)
    if task not in sharers:
        return DataPlace(host.name, f"{base}/{WHOLE}")
    return DataPlace(host.name, f"{base}/{task.job}-{task.index}", (sharers.index(task), len(sharers)))


def task_ports(cluster: Cluster, host: str) -> tuple[int, ...]:
    """Those of its tasks, or of all where it has none: other hosts are able to connect to them."""
    ports = [(name, port) for job in cluster.jobs.values() for name, port in zip(job.hosts, job.ports, strict=True)]
    known = [(name, port) for name, port in ports if port != CHOSEN_PORT]
    return tuple(sorted({port for name, port in known if name == host} or {port for _, port in known}))


def data_places(cluster: Cluster) -> tuple[DataPlace, ...]:
    """Each directory once; none where dtctl brings no data. A spare gets what any task reads."""
    if cluster.data.source is None:
        return ()
    sharers = dealt(cluster)
    tasks = readers(cluster)
    places = [(cluster.host_of(task), task) for task in tasks]
    places += [(cluster.hosts[name], task) for name in cluster.standby for task in tasks]
    found = (data_place(cluster, host, task, sharers) for host, task in places)
    return tuple(dict.fromkeys(place for place in found if place is not None))
