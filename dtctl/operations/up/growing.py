"""The tasks that hosts add to a live run which they join: as the file gives them, until `scale` surplus.

Only to a run whose tasks train together: those learn who takes part whenever they start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from dtctl.agent.records.spec import Inventory, added_by, job_of
from dtctl.config.cluster import Cluster, Job
from dtctl.config.strategies import role_of
from dtctl.model import CHOSEN_PORT, TaskId


def grown(file: Cluster, before: Cluster, run: Inventory, new: Collection[str]) -> Cluster:
    """The cluster of the run, as it began, with the tasks that the file gives to these hosts at the end of its jobs.

    Tasks that earlier hosts have added come before them.
    """
    jobs = {name: _grown(file.jobs[name], job, run, new, before) for name, job in before.jobs.items()}
    busy = {host for job in jobs.values() for host in job.hosts}
    spares = tuple(host for host in before.spares if host not in busy)
    hosts = {**before.hosts, **{name: host for name, host in file.hosts.items() if name in busy}}
    return dataclasses.replace(before, jobs=jobs, hosts=hosts, spares=spares)


def _grown(file: Job, job: Job, run: Inventory, new: Collection[str], before: Cluster) -> Job:
    if not run["resizes"] or role_of(TaskId(job.name, len(job.hosts)), before.lead) != "worker":
        return job
    added = [one for one in added_by(run["moved"]) if job_of(one["task"]) == job.name]
    earlier = [(one["host"], int((one["address"] or "").rpartition(":")[2] or 0)) for one in added]
    joined = run["moved"]["joined"]  # also a host whose join was cut off
    own = [place for place in zip(file.hosts, file.ports, strict=True) if place[0] in new and place[0] not in joined]
    places = [*zip(job.hosts, job.ports, strict=True), *earlier, *own]
    return dataclasses.replace(job, hosts=tuple(host for host, _ in places), ports=tuple(port for _, port in places))


def with_free_ports(cluster: Cluster, taken: Mapping[str, Collection[int]]) -> Cluster:
    """The cluster with other ports for tasks of these hosts where the others may need theirs.

    `taken`: host -> ports that tasks would have there that it can take over, and its coordinator's.
    """
    used = {host: set(ports) for host, ports in taken.items()}
    every = {port for ports in taken.values() for port in ports}.union(*(job.ports for job in cluster.jobs.values()))

    def free(host: str, port: int) -> int:
        if host not in used:
            return port
        port = max(every) + 1 if port == CHOSEN_PORT else port
        while port in used[host]:
            port += 1
        used[host].add(port)
        return port

    jobs = {}
    for name, job in cluster.jobs.items():
        ports = (free(host, port) for host, port in zip(job.hosts, job.ports, strict=True))
        jobs[name] = dataclasses.replace(job, ports=tuple(ports))
    return dataclasses.replace(cluster, jobs=jobs)


def tasks_of(cluster: Cluster, hosts: Collection[str]) -> dict[str, tuple[TaskId, ...]]:
    """Host -> its tasks, for those of these hosts that have some."""
    found: dict[str, tuple[TaskId, ...]] = {}
    for task in cluster.tasks():
        host = cluster.host_of(task).name
        if host in hosts:
            found[host] = (*found.get(host, ()), task)
    return found
