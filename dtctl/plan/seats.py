"""Which spares can take the tasks of which hosts, and what stands for an address that may change during the run."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Collection, Mapping

from dtctl.agent.records.values import MARK, address_mark
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT, TaskId
from dtctl.plan.hosts import Gpus, visible_gpus


@dataclass(frozen=True)
class Seat:
    """The tasks of a host as they would be on a spare."""

    ports: Mapping[TaskId, int]
    gpus: Gpus
    """Of all tasks of the cluster."""


def seats_on(cluster: Cluster, spare: str, gpus: Gpus, taken: Collection[int]) -> Mapping[str, Seat]:
    """By the host whose tasks they are; those that have GPUs enough there. `taken`: ports of others on the spare.

    No two tasks have the same port there, so it can take the tasks of several hosts.
    """
    used = set(taken)
    seats: dict[str, Seat] = {}
    for host in dict.fromkeys(host for job in cluster.jobs.values() for host in job.hosts):
        there = _gpus_there(cluster, host, spare, gpus)
        if there is not None:
            tasks = [task for task in cluster.tasks() if cluster.host_of(task).name == host]
            seats[host] = Seat({task: _free(cluster.jobs[task.job].ports[task.index], used) for task in tasks}, there)
    return seats


def _gpus_there(cluster: Cluster, host: str, spare: str, gpus: Gpus) -> Gpus | None:
    if cluster.hosts[host].gpus == cluster.hosts[spare].gpus:
        return gpus
    try:
        return visible_gpus(exchanged(cluster, host, spare))
    except PreflightError:  # too few
        return None


def exchanged(cluster: Cluster, old: str, new: str) -> Cluster:
    """With `new` in every place of `old`."""
    jobs = {
        name: dataclasses.replace(job, hosts=tuple(new if host == old else host for host in job.hosts))
        for name, job in cluster.jobs.items()
    }
    return dataclasses.replace(cluster, jobs=jobs)


def _free(wanted: int, used: set[int]) -> int:
    """The port itself, or the next one that is not used; the hosts may still have to choose it."""
    if wanted == CHOSEN_PORT:
        return wanted
    port = next(port for port in itertools.chain(range(wanted, 65536), range(1024, wanted)) if port not in used)
    used.add(port)
    return port


_PLACE = re.compile(r"\0HOST\(([\w.-]+)/(\d+)\)(?::\0PORT\(([\w.-]+)/(\d+)\))?|\0PORT\(([\w.-]+)/(\d+)\)")


def marked_spec(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The addresses of all tasks as they stand in the words of a plan until `with_marks` has seen them.

    They split at their last colon, and those of one host have the same beginning, as those of addresses.
    """
    first: dict[str, TaskId] = {}
    for task in cluster.tasks():
        first.setdefault(cluster.host_of(task).name, task)
    return {
        job.name: tuple(
            f"\0HOST({first[host].job}/{first[host].index}):\0PORT({job.name}/{index})"
            for index, host in enumerate(job.hosts)
        )
        for job in cluster.jobs.values()
    }


def with_marks(text: str) -> str:
    """With the marks that the agents replace (agent/run/environment.py)."""
    return _PLACE.sub(_mark, text)


def named_by_others(words: Mapping[str, Collection[str]]) -> set[str]:
    """Tasks whose addresses others are started with. `words`: of each task."""
    found: dict[str, frozenset[str]] = {}
    named: set[str] = set()
    for task, texts in words.items():
        for text in filter(has_address, texts):
            if text not in found:
                marks = [mark.group(3) or mark.group(5) for mark in MARK.finditer(text)]
                listed = [one for one in words if one.partition(":")[0] in marks]
                found[text] = frozenset([*(mark for mark in marks if mark and ":" in mark), *listed])
            named |= found[text] - {task}
    return named


def has_address(text: str) -> bool:
    """Whether it has a mark that only the run can replace."""
    return re.search(r"\0(?!HOME|CODE|PATH|PYTHON)", text) is not None


def _mark(found: re.Match[str]) -> str:
    host, host_index, at, at_index, port, port_index = found.groups()
    if at is not None:
        return address_mark(f"{at}:{at_index}")
    if port is not None:
        return address_mark(f"{port}:{port_index}", "PORT")
    return address_mark(f"{host}:{host_index}", "HOST")
