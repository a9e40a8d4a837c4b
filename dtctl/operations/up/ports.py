"""Ports that somebody else has, and ports that the hosts choose."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dtctl.agent.records.answers import PortsResult, Prepared
from dtctl.config.ranges import fold
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import CHOSEN_PORT, Cluster, Host, TaskId
from dtctl.operations.asking.conversation import Request
from dtctl.operations.asking.plausible import check_tasks, wrong

_MOST_TOLD = 10


def refuse_taken_ports(prepared: Mapping[str, Prepared], cluster: Cluster) -> None:
    """Raises PreflightError, which names who has them and what to type to take others, on all hosts at once."""
    taken = [(host, one) for host, answer in prepared.items() for one in answer["taken"]]
    if not taken:
        return
    ports = ", ".join(map(str, sorted({one["port"] for _, one in taken})))
    told = [f"{host}: port {one['port']} of {one['whose']} is held by {one['holder']}" for host, one in taken]
    free = [set(answer["free_from"]) for answer in prepared.values()]
    first = min(set.intersection(*free), default=None)
    raise PreflightError(
        f"{'ports' if ',' in ports else 'port'} {ports} {'are' if ',' in ports else 'is'} in use on "
        f"{fold({host for host, _ in taken})}",
        detail="\n".join(told[:_MOST_TOLD] + [f"and {len(told) - _MOST_TOLD} more"] * (len(told) > _MOST_TOLD)),
        hint=_remedy(cluster, {one["whose"].partition(":")[0] for _, one in taken}, first),
    )


def holders(prepared: Mapping[str, Prepared]) -> dict[str, DtctlError]:
    """The same of each host where that is so."""
    told = {host: answer["taken"][0] for host, answer in prepared.items() if answer["taken"]}
    return {
        host: PreflightError(f"{host}: port {one['port']} of {one['whose']} is held by {one['holder']}")
        for host, one in told.items()
    }


def _remedy(cluster: Cluster, whose: set[str], first: int | None) -> str:
    own = [job for job in cluster.jobs.values() if job.own_port]
    fixed = [job.name for job in own] + ["the coordinator"] * cluster.own_coordinator_port
    words = []
    if first is not None:
        words += [f"--ports-from {first}"] * any(name not in fixed for name in whose)
        next_port = first
        if cluster.own_coordinator_port and "the coordinator" in whose:
            words.append(f"--set coordinator.port={first}")
        next_port = first + 1
        for job in own:
            if job.name in whose:
                words.append(f"--set jobs.{job.name}.port={next_port}")
            next_port += max(map(job.hosts.count, set(job.hosts)))
    choose = f"write ports: auto{', and no port: of a job,' if own else ''} in {cluster.file}, and the hosts choose"
    return f"dtctl up {' '.join(words)}    takes ports that are free on all hosts; or {choose}" if words else choose


def wanted_ports(cluster: Cluster, host: str) -> tuple[list[TaskId], bool]:
    """The tasks of a host that it chooses a port for, and whether the coordinator is there and has none yet."""
    tasks = [
        TaskId(job.name, index)
        for job in cluster.jobs.values()
        for index, port in enumerate(job.ports)
        if port == CHOSEN_PORT and job.hosts[index] == host
    ]
    return tasks, cluster.coordinator_port == CHOSEN_PORT and cluster.host_of(cluster.lead).name == host


def ports_request(cluster: Cluster, host: str) -> Request[PortsResult]:
    """Asks a host to choose them."""
    tasks, coordinator = wanted_ports(cluster, host)
    names = frozenset(map(str, tasks))

    def check(_: Host, answer: PortsResult) -> None:
        check_tasks("tasks", answer["tasks"], names)
        if set(answer["tasks"]) != names or (answer["coordinator"] is not None) != coordinator:
            raise wrong("tasks", "a port for each task", None)

    return Request("ports", PortsResult, lambda _: {"tasks": sorted(names), "coordinator": coordinator}, check)


def with_chosen(cluster: Cluster, chosen: Mapping[str, PortsResult]) -> Cluster:
    """The cluster with the ports that its hosts have answered."""

    def port(task: TaskId, said: int) -> int:
        return said if said != CHOSEN_PORT else chosen[cluster.host_of(task).name]["tasks"][str(task)]

    jobs = {
        name: dataclasses.replace(
            job, ports=tuple(port(TaskId(name, index), said) for index, said in enumerate(job.ports))
        )
        for name, job in cluster.jobs.items()
    }
    coordinator = cluster.coordinator_port
    if coordinator == CHOSEN_PORT:
        coordinator = chosen[cluster.host_of(cluster.lead).name]["coordinator"] or CHOSEN_PORT
    return dataclasses.replace(cluster, jobs=jobs, coordinator_port=coordinator)
