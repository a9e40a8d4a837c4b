"""How trainers of other frameworks learn their place: variables, as each framework's own launcher sets them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtctl.model import Cluster, TaskId
from dtctl.ways import EVALUATOR, PS, SCHEDULER, SERVER, trainers

if TYPE_CHECKING:
    from dtctl.plan.dialects import ClusterSpec


@dataclass(frozen=True)
class Neighbourhood:
    """Who trains beside whom."""

    spec: ClusterSpec
    """Job -> addresses, of those who talk to each other."""
    ranks: Mapping[TaskId, int]
    """The tasks that train, in the order of their ranks."""
    beside: Mapping[TaskId, tuple[TaskId, ...]]
    """For each of these, those who train on its host, itself among them, by rank."""

    @classmethod
    def of(cls, cluster: Cluster, spec: ClusterSpec) -> Neighbourhood:
        ranks = {task: rank for rank, task in enumerate(trainers(cluster))}
        here: dict[str, list[TaskId]] = {}
        for task in ranks:
            here.setdefault(cluster.host_of(task).name, []).append(task)
        beside = {task: tuple(tasks) for tasks in here.values() for task in tasks}
        return cls({job: each for job, each in spec.items() if job != EVALUATOR}, ranks, beside)

    @property
    def head(self) -> TaskId:
        """The first by rank."""
        return next(iter(self.ranks))

    def address(self, task: TaskId) -> tuple[str, str]:
        """Host and port."""
        host, _, port = self.spec[task.job][task.index].rpartition(":")
        return host.strip("[]"), port


def pytorch(task: TaskId, around: Neighbourhood) -> Mapping[str, str]:
    """As torchrun sets them, for init_method="env://" (pytorch/torch/distributed/rendezvous.py)."""
    host, port = around.address(around.head)
    place = {"MASTER_ADDR": host, "MASTER_PORT": port, "WORLD_SIZE": str(len(around.ranks))}
    if task not in around.ranks:
        return place
    beside = around.beside[task]
    own = {"RANK": around.ranks[task], "LOCAL_RANK": beside.index(task), "LOCAL_WORLD_SIZE": len(beside)}
    return {**place, **{name: str(value) for name, value in own.items()}}


def jax(task: TaskId, around: Neighbourhood) -> Mapping[str, str]:
    """The arguments of jax.distributed.initialize(); for the address it looks itself (jax/_src/distributed.py)."""
    head = around.head
    address = around.spec[head.job][head.index]
    place = {"COORDINATOR_ADDRESS": address, "JAX_COORDINATOR_ADDRESS": address}
    number = {"PROCESS_ID": str(around.ranks[task])} if task in around.ranks else {}
    return {**place, "NUM_PROCESSES": str(len(around.ranks)), **number}


def mxnet(task: TaskId, around: Neighbourhood) -> Mapping[str, str]:
    """Those of ps-lite (dmlc/ps-lite/docs/env.md). Who is neither scheduler nor server is a worker."""
    if task.job not in around.spec:
        return {}
    root, port = around.address(TaskId(SCHEDULER, 0))
    count = {job: len(addresses) for job, addresses in around.spec.items()}
    servers = sum(count.get(job, 0) for job in (SERVER, PS))
    role = SCHEDULER if task.job == SCHEDULER else SERVER if task.job in (SERVER, PS) else "worker"
    return {
        "DMLC_ROLE": role,
        "DMLC_PS_ROOT_URI": root,
        "DMLC_PS_ROOT_PORT": port,
        "DMLC_NUM_WORKER": str(sum(count.values()) - servers - count[SCHEDULER]),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_NODE_HOST": around.address(task)[0],
    }


def cluster_spec(task: TaskId, around: Neighbourhood) -> Mapping[str, str]:
    """The cluster as JSON, and the task's place in it, as launchers before TF_CONFIG gave them."""
    spec = {job: list(addresses) for job, addresses in around.spec.items()}
    return {"CLUSTER_SPEC": json.dumps(spec), "JOB_NAME": task.job, "TASK_INDEX": str(task.index)}


VARIABLES: Mapping[str, Callable[[TaskId, Neighbourhood], Mapping[str, str]]] = {
    "pytorch": pytorch,
    "jax": jax,
    "mxnet": mxnet,
    "cluster_spec": cluster_spec,
}
"""Dialect -> what it puts into a trainer's environment."""
