"""How trainers of other frameworks learn their place: variables, as each framework's own launcher sets them. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dtctl.model import Cluster, TaskId
from dtctl.strategies import EVALUATOR, PS, SCHEDULER, SERVER, trainers

if TYPE_CHECKING:
    from dtctl.plan.dialects import ClusterSpec


@dataclass(frozen=True)
class RankLayout:
    """The ranks of the tasks that train, and where each of them runs."""

    spec: ClusterSpec
    """Job -> addresses, of those who talk to each other."""
    ranks: Mapping[TaskId, int]
    """The tasks that train, in the order of their ranks."""
    beside: Mapping[TaskId, tuple[TaskId, ...]]
    """For each of these, those who train on its host, itself among them, by rank."""
    gpus: Mapping[TaskId, tuple[int, ...] | None]
    """As `visible_gpus` gives them."""

    @classmethod
    def of(cls, cluster: Cluster, spec: ClusterSpec, gpus: Mapping[TaskId, tuple[int, ...] | None]) -> RankLayout:
        ranks = {task: rank for rank, task in enumerate(trainers(cluster))}
        here: dict[str, list[TaskId]] = {}
        for task in ranks:
            here.setdefault(cluster.host_of(task).name, []).append(task)
        beside = {task: tuple(tasks) for tasks in here.values() for task in tasks}
        return cls({job: each for job, each in spec.items() if job != EVALUATOR}, ranks, beside, gpus)

    @property
    def head(self) -> TaskId:
        """The first by rank."""
        return next(iter(self.ranks))

    def address(self, task: TaskId) -> tuple[str, str]:
        """Host and port."""
        host, _, port = self.spec[task.job][task.index].rpartition(":")
        return host.strip("[]"), port


def pytorch(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """As torchrun sets them, for init_method="env://" (pytorch/torch/distributed/rendezvous.py)."""
    host, port = around.address(around.head)
    place = {"MASTER_ADDR": host, "MASTER_PORT": port, "WORLD_SIZE": str(len(around.ranks))}
    if task not in around.ranks:
        return place
    beside = around.beside[task]
    own = {"RANK": around.ranks[task], "LOCAL_RANK": beside.index(task), "LOCAL_WORLD_SIZE": len(beside)}
    return {**place, **{name: str(value) for name, value in own.items()}}


_MOST_GPUS = 16
"""Of a host that declares none. XLA uses those of them that exist (xla/service/platform_util.cc)."""


def jax(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """For jax.distributed.initialize(), with arguments taken from the first names or without any.

    It reads JAX_COORDINATOR_ADDRESS and JAX_LOCAL_DEVICE_IDS itself (jax/_src/distributed.py). The number of processes
    and its own it finds only where it takes the program for a step of Slurm (jax/_src/clusters/slurm_cluster.py). There
    it would use one GPU a process; the list of local devices keeps all that the task may use.
    """
    head = around.head
    address = around.spec[head.job][head.index]
    place = {"COORDINATOR_ADDRESS": address, "JAX_COORDINATOR_ADDRESS": address}
    processes = str(len(around.ranks))
    if task not in around.ranks:
        return {**place, "NUM_PROCESSES": processes}
    number, gpus = str(around.ranks[task]), around.gpus[task]
    hosts = tuple(dict.fromkeys(around.address(each)[0] for each in around.ranks))
    return {
        **place,
        "NUM_PROCESSES": processes,
        "PROCESS_ID": number,
        "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(len(gpus) if gpus else _MOST_GPUS))),
        "SLURM_JOB_ID": "1",  # a port is derived from it where no address is set
        "SLURM_STEP_NODELIST": ",".join(hosts),
        "SLURM_STEP_NUM_NODES": str(len(hosts)),
        "SLURM_NTASKS": processes,
        "SLURM_PROCID": number,
        "SLURM_LOCALID": str(around.beside[task].index(task)),
    }


def mxnet(task: TaskId, around: RankLayout) -> Mapping[str, str]:
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


def cluster_spec(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """The cluster as JSON, and the task's place in it, as launchers before TF_CONFIG gave them."""
    spec = {job: list(addresses) for job, addresses in around.spec.items()}
    return {"CLUSTER_SPEC": json.dumps(spec), "JOB_NAME": task.job, "TASK_INDEX": str(task.index)}


VARIABLES: Mapping[str, Callable[[TaskId, RankLayout], Mapping[str, str]]] = {
    "pytorch": pytorch,
    "jax": jax,
    "mxnet": mxnet,
    "cluster_spec": cluster_spec,
}
"""Dialect -> what it puts into a trainer's environment."""
