"""A cluster on the nodes of a job: those of its allocation, or ones that are not known yet. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import CHOSEN_PORT, Host, OtherTransport

TRANSPORT = "slurm"
VARIABLE = "DTCTL_SLURM_NODES"
"""Holds what the batch script knows, for the `up` that it starts."""


@dataclass(frozen=True)
class Node:
    """A node of an allocation. `gpus`: how many the job has there; None: Slurm has said nothing of GPUs.
    `gpu_numbers`: as in Host (model.py).
    """

    name: str
    address: str
    gpus: int | None = None
    gpu_numbers: str = ""

    @classmethod
    def of(cls, name: str, address: str, devices: str) -> Node:
        """`devices`: what Slurm has written to CUDA_VISIBLE_DEVICES of a step there."""
        named = [one for one in devices.split(",") if one]
        numbers = ",".join(named) if all(one.isdecimal() for one in named) else ""
        return cls(name, address, len(named) or None, numbers)


@dataclass(frozen=True)
class Given:
    """What a job has been given, and the id of the run that it is to start."""

    job: str
    run: str
    nodes: tuple[Node, ...]

    def to_json(self) -> str:
        return json.dumps({"job": self.job, "run": self.run, "nodes": [vars(node) for node in self.nodes]})

    @classmethod
    def from_json(cls, text: str) -> Given:
        data = json.loads(text)
        return cls(data["job"], data["run"], tuple(Node(**node) for node in data["nodes"]))


def given(environ: Mapping[str, str]) -> Given | None:
    """What this process was given; None outside of a job of dtctl's."""
    text = environ.get(VARIABLE)
    return Given.from_json(text) if text else None


def machines(cluster: Cluster) -> tuple[str, ...]:
    """The hosts that become nodes: the lead's, then others with a task, then spares, each in the order of the file.

    The first node is that of the batch script, which can reach the coordinator there even when the job is ending.
    """
    used = {host for job in cluster.jobs.values() for host in job.hosts}
    lead = cluster.host_of(cluster.lead).name
    return (lead, *(name for name in cluster.hosts if name in used and name != lead), *cluster.spares)


def most_tasks(cluster: Cluster) -> int:
    """The number of tasks of the host that has the most."""
    placed = [host for job in cluster.jobs.values() for host in job.hosts]
    return max(map(placed.count, placed), default=1)


def most_gpus(cluster: Cluster) -> int:
    return max((cluster.hosts[name].gpus for name in machines(cluster)), default=0)


def placed(cluster: Cluster, nodes: Sequence[Node], job: str, python: str) -> Cluster:
    """The cluster on these nodes. Ports are chosen there, since other jobs may share a node. Nothing restarts after the
    job, and what would be brought is read where it is: the nodes share the directories of the file.

    `python`: the interpreter of trainers where the file names none.
    """
    wanted = machines(cluster)
    if len(nodes) < len(wanted):
        raise PreflightError(
            f"job {job} has {len(nodes)} nodes, and the cluster needs {len(wanted)}",
            hint="take --nodes out of slurm.words: dtctl asks for as many as it needs",
        )
    names = {host: node.name for host, node in zip(wanted, nodes, strict=False)}
    named = cluster.trainer.python or cluster.trainer.venv or cluster.trainer.environment
    hosts = [
        _host(cluster.hosts[host], node, job, None if named else python)
        for host, node in zip(wanted, nodes, strict=False)
    ]
    jobs = {
        name: dataclasses.replace(
            one, hosts=tuple(names[host] for host in one.hosts), ports=(CHOSEN_PORT,) * len(one.ports), own_port=False
        )
        for name, one in cluster.jobs.items()
    }
    dirs, data = cluster.dirs, cluster.data
    if data.source is not None:
        dirs, data = {**dirs, "data": str(data.source)}, dataclasses.replace(data, source=None)
    return dataclasses.replace(
        cluster,
        hosts={host.name: host for host in hosts},
        jobs=jobs,
        dirs=dirs,
        data=data,
        coordinator_port=CHOSEN_PORT,
        own_coordinator_port=False,
        spares=tuple(names[host] for host in cluster.spares),
        arbiters=(),
        recovery=dataclasses.replace(cluster.recovery, reboot="never"),
        as_written={},
    )


def _host(host: Host, node: Node, job: str, python: str | None) -> Host:
    gpus = host.gpus if node.gpus is None else node.gpus
    reach = OtherTransport(TRANSPORT, f"{job}/{node.name}")
    return dataclasses.replace(
        host,
        name=node.name,
        reach=reach,
        address=node.address,
        gpus=gpus,
        gpu_numbers=node.gpu_numbers,
        python=host.python or python,
    )


def unknown_nodes(cluster: Cluster) -> list[Node]:
    """Stand for the nodes of a job that has none yet: node-1 is the first."""
    names = (f"node-{number}" for number in range(1, len(machines(cluster)) + 1))
    return [Node(name, name) for name in names]
