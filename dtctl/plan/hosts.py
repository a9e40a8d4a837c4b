"""The directories of a cluster on its hosts, the GPUs and ports of its tasks, and the data directory of each task."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping

from dtctl.agent.records.values import HOME, is_storage_url, paths_of
from dtctl.config.cluster import Cluster, Job
from dtctl.config.placement import FIRST_PORT
from dtctl.config.strategies import KVSTORE_JOBS, PS, Strategy, gpus_wanted, strategy_of, trainers
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT, Host, Local, TaskId, grouped

Directories = Mapping[str, str]
"""data, output, work, log: paths on one host, with marks, and storage URLs."""

Gpus = Mapping["TaskId", "tuple[int, ...] | None"]
"""Indexes of those that each task sees; None: those of its host are not declared."""


AUTO = "auto"
"""Stands for a port that its host has not chosen yet."""


def join_address(host: str, port: int) -> str:
    shown = AUTO if port == CHOSEN_PORT else str(port)
    return f"[{host}]:{shown}" if ":" in host else f"{host}:{shown}"


def on_host(path: str, cluster: str) -> str:
    """`path` made absolute: ~ is the user's home there, and a relative path lies under ~/dtctl/CLUSTER.

    A storage URL stays as it is.
    """
    if path.startswith("/") or is_storage_url(path):
        return path
    if path == "~" or path.startswith("~/"):
        return HOME + path[1:]
    return f"{HOME}/dtctl/{cluster}/{path.removeprefix('./')}".removesuffix("/.")


def directories(cluster: Cluster, host: Host) -> Directories:
    return {name: on_host(path, cluster.name) for name, path in {**cluster.dirs, **host.dirs}.items()}


def checkpoint_places(cluster: Cluster, dirs: Directories) -> tuple[str, ...]:
    """Directories on a host, or storage URLs."""
    if cluster.checkpoint_dir is not None:
        return (on_host(cluster.checkpoint_dir, cluster.name),)
    return (dirs["output"],) if "output" in dirs else ()


def event_places(cluster: Cluster, dirs: Directories) -> tuple[str, ...]:
    """Directories to which trainers may write event files for TensorBoard."""
    return tuple(
        dict.fromkeys([*output_places(cluster, dirs), *(dirs[name] for name in ("log", "work") if name in dirs)])
    )


def output_places(cluster: Cluster, dirs: Directories) -> tuple[str, ...]:
    """Directories that a run writes to and continues from."""
    return tuple(sorted({*checkpoint_places(cluster, dirs), *(dirs[name] for name in ("output",) if name in dirs)}))


def brought_along(cluster: Cluster, host: Host, dirs: Directories) -> tuple[str, ...]:
    """Directories that have to be there before a run: data, unless dtctl brings it or it lies below ~/dtctl/CLUSTER.

    A ps reads none; a spare may get any task.
    """
    if cluster.data.source is not None:
        return ()
    reads = host.name in cluster.standby or any(
        host.name in job.hosts for name, job in cluster.jobs.items() if name not in (PS, *KVSTORE_JOBS)
    )
    own = on_host(".", cluster.name) + "/"
    data = paths_of([dirs["data"]]) if reads and "data" in dirs else []
    return tuple(path for path in data if not path.startswith(own))


def visible_gpus(cluster: Cluster) -> Gpus:
    """The GPUs that each task sees: its own share, or with the dialect pytorch those of all such tasks on its host.

    A trainer for torchrun takes the one of its LOCAL_RANK.
    """
    shares = share_gpus(cluster)
    host_of = {task: cluster.host_of(task).name for task in _for_torchrun(cluster)}
    together = grouped((host, gpu) for task, host in host_of.items() for gpu in shares[task] or ())
    seen = {task: tuple(sorted(set(together.get(host, ())))) for task, host in host_of.items()}
    return {task: share and seen.get(task, share) for task, share in shares.items()}


def _for_torchrun(cluster: Cluster) -> list[TaskId]:
    return [task for task in cluster.tasks() if cluster.jobs[task.job].launch.dialect == "pytorch"]


def share_gpus(cluster: Cluster) -> Gpus:
    """The GPUs of each task; None if the host declares none, and the task may use any."""
    here: dict[str, dict[TaskId, Job]] = {name: {} for name in cluster.hosts}
    for task in cluster.tasks():
        job = cluster.jobs[task.job]
        here[job.hosts[task.index]][task] = job
    shares: dict[TaskId, tuple[int, ...] | None] = {}
    for name, tasks in here.items():
        shares.update(_share_on(cluster.hosts[name], tasks))
    return shares


def _share_on(host: Host, tasks: Mapping[TaskId, Job]) -> dict[TaskId, tuple[int, ...] | None]:
    wanted = {task: gpus_wanted(job) for task, job in tasks.items()}
    if host.gpus == 0:
        return {task: () if want == 0 else None for task, want in wanted.items()}
    sharers = [task for task, want in wanted.items() if want is None]
    left = host.gpus - sum(want or 0 for want in wanted.values())
    if left < len(sharers):
        gpus = f"{host.gpus} GPU{'s' if host.gpus > 1 else ''}"
        raise PreflightError(
            f"host {host.name} has {gpus}, too few for {', '.join(map(str, tasks))}",
            hint="set gpus_per_task for a job (0 hides the GPUs from it), or place its tasks elsewhere",
        )
    each, more = divmod(left, len(sharers)) if sharers else (0, 0)
    counts = {task: want if want is not None else each + (sharers.index(task) < more) for task, want in wanted.items()}
    firsts = itertools.accumulate(counts.values(), initial=0)
    numbers = tuple(map(int, host.gpu_numbers.split(","))) if host.gpu_numbers else tuple(range(host.gpus))
    return {task: numbers[first : first + count] for (task, count), first in zip(counts.items(), firsts, strict=False)}


LOOPBACK = "127.0.0.1"
_LAST_PORT = 32767
"""Above it kernels hand out ports to outgoing connections, so a port that is free now may be taken at the start."""


def on_this_machine(cluster: Cluster, is_free: Callable[[int], bool]) -> Cluster:
    """`cluster` with all its hosts local; a port that is taken, or that two hosts would now share, moves up.

    Data that would be brought to the hosts is read where it is.
    """
    taken: set[int] = set()

    def own_port(wanted: int) -> int:
        wanted = wanted or FIRST_PORT
        for port in itertools.chain(range(wanted, _LAST_PORT + 1), (wanted,), range(1024, wanted)):
            if port not in taken and is_free(port):
                taken.add(port)
                return port
        raise PreflightError("no free port is left on this machine")

    hosts = {
        name: dataclasses.replace(host, reach=Local(), address=LOOPBACK, python=None, dirs={})
        for name, host in cluster.hosts.items()
    }
    jobs = {
        name: dataclasses.replace(job, ports=tuple(own_port(port) for port in job.ports))
        for name, job in cluster.jobs.items()
    }
    coordinator_port = own_port(cluster.coordinator_port)
    dirs, data = cluster.dirs, cluster.data
    if data.source is not None:
        dirs, data = {**dirs, "data": str(data.source)}, dataclasses.replace(data, source=None)
    own = dataclasses.replace(cluster, hosts=hosts, jobs=jobs, coordinator_port=coordinator_port, dirs=dirs, data=data)
    return dataclasses.replace(own, spares=(), arbiters=())  # a machine cannot stand in for itself


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
    # A coordinating chief reads no data itself: no task would train on its share.
    idle = cluster.lead if strategy_of(cluster) is Strategy.PS_STRATEGY else None
    wanted = readers(cluster)
    return tuple(task for task in trainers(cluster) if task in wanted and task != idle)


def data_place(cluster: Cluster, host: Host, task: TaskId, sharers: tuple[TaskId, ...]) -> DataPlace | None:
    """The data directory of a task on a host; None if the file sets none, or a storage URL.

    `sharers`: the result of `dealt`.
    """
    base = directories(cluster, host).get("data")
    if base is None or is_storage_url(base):
        return None
    if not sharers:
        return DataPlace(host.name, base)
    if task not in sharers:
        return DataPlace(host.name, f"{base}/{WHOLE}")
    return DataPlace(host.name, f"{base}/{task.job}-{task.index}", (sharers.index(task), len(sharers)))


def task_ports(cluster: Cluster, host: str) -> tuple[int, ...]:
    """The ports of the host's tasks, or of all tasks if it has none: other hosts can connect to these ports."""
    ports = [(name, port) for job in cluster.jobs.values() for name, port in zip(job.hosts, job.ports, strict=True)]
    known = [(name, port) for name, port in ports if port != CHOSEN_PORT]
    return tuple(sorted({port for name, port in known if name == host} or {port for _, port in known}))


def data_places(cluster: Cluster) -> tuple[DataPlace, ...]:
    """All data directories, each once; none if dtctl sends no data. A spare gets the data of every task."""
    if cluster.data.source is None:
        return ()
    sharers = dealt(cluster)
    tasks = readers(cluster)
    places = [(cluster.host_of(task), task) for task in tasks]
    places += [(cluster.hosts[name], task) for name in cluster.standby for task in tasks]
    found = (data_place(cluster, host, task, sharers) for host, task in places)
    return tuple(dict.fromkeys(place for place in found if place is not None))
