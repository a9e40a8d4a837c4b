"""How a trainer learns its place in the cluster: TensorFlow's flags, TF_CONFIG, or a template of words."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from dtctl.agent.records.values import INDEX, job_mark, separated
from dtctl.config.cluster import Cluster, Launch, TfConfig
from dtctl.config.strategies import EVALUATOR, PS, SCHEDULER, SERVER, trainers
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import FIELD, SPACE, TaskId, grouped

if TYPE_CHECKING:
    from dtctl.plan.hosts import Gpus


ClusterSpec = Mapping[str, Sequence[str]]
"""Job name -> addresses in task order, as tf.train.ClusterSpec takes it."""

_FIELD = re.compile(r"\{(\w+)\}")


def _json(value: object) -> str:
    """JSON text of names and addresses. Marks keep their NUL, by which agents find them."""
    return separated(json.dumps(value).replace("\\u0000", "\0"), "QUOTED")


def tensorflow_flags(task: TaskId, spec: ClusterSpec, index: str) -> tuple[str, ...]:
    """Flags of TensorFlow's distributed trainers, jobs in the order of the cluster file."""
    hosts = (f"--{job}_hosts={','.join(addresses)}" for job, addresses in spec.items())
    return (*hosts, f"--job_name={task.job}", f"--task_index={index}")


@dataclass(frozen=True)
class TfConfigs:
    """The values of TF_CONFIG (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py).

    `spec` is of all jobs. An evaluator reads checkpoints and connects to no task, so it has no place in the cluster.
    """

    spec: ClusterSpec
    lead: TaskId
    said: TfConfig
    resizes: bool = False
    """Lists and indexes are those of the tasks that take part in an attempt."""

    def of(self, task: TaskId) -> str:
        more = {"environment": self.said.environment, "rpc_layer": self.said.rpc_layer}
        rest = {
            "task": {"type": task.job, "index": INDEX if self.resizes else task.index},
            **{name: value for name, value in more.items() if value is not None},
        }
        cluster = self._seen_by(task) if self.said.sparse else self._whole
        return f'{{"cluster": {cluster}, {json.dumps(rest)[1:]}'.replace(json.dumps(INDEX), INDEX)

    @cached_property
    def _whole(self) -> str:
        """Made once: a thousand tasks each have the addresses of all."""
        return _json({job: list(addresses) for job, addresses in self._named.items() if addresses})

    def _seen_by(self, task: TaskId) -> str:
        # A job of which not all tasks are named is a mapping by index (tf.train.ClusterSpec).
        seen = {job: _sparse(job, task, self.lead, addresses) for job, addresses in self._named.items()}
        return _json({job: tasks for job, tasks in seen.items() if tasks})

    @cached_property
    def _named(self) -> ClusterSpec:
        return {job: each for job, each in self.spec.items() if job != EVALUATOR or self.said.evaluator_in_cluster}


def _sparse(job: str, task: TaskId, lead: TaskId, addresses: Sequence[str]) -> list[str] | dict[str, str]:
    """The addresses of a job that a worker needs: of the workers only the lead and itself.

    Servers and the lead see all.
    """
    if task == lead or task.job in (PS, EVALUATOR) or job in (PS, EVALUATOR):
        return list(addresses)
    wanted = {other.index for other in (task, lead) if other.job == job}
    return {str(index): address for index, address in enumerate(addresses) if index in wanted}


def listed(spec: ClusterSpec) -> ClusterSpec:
    """The spec with a mark for the addresses of each job; the agent fills in the tasks that take part in an attempt."""
    return {job: (job_mark(job),) for job in spec}


def placement_arguments(launch: Launch, task: TaskId, spec: ClusterSpec, fields: Mapping[str, str]) -> tuple[str, ...]:
    """The words that follow a trainer's own arguments in its dialect."""
    if launch.dialect in ("tensorflow", "flags"):
        return tensorflow_flags(task, spec, fields["task_index"])
    if launch.dialect == "template":
        return tuple(filled for argument in launch.template for filled in _fill_template(argument, fields))
    return ()


def placement_env(launch: Launch, task: TaskId, configs: TfConfigs) -> Mapping[str, str]:
    return {"TF_CONFIG": configs.of(task)} if launch.dialect in ("tensorflow", "tf_config") else {}


def fill(text: str, fields: Mapping[str, str]) -> str:
    """`text` with the {fields} that dtctl knows; other braces are the user's own (JSON, say) and stay."""
    return _FIELD.sub(lambda match: fields.get(match[1], match[0]), text)


def _fill_template(argument: str, fields: Mapping[str, str]) -> Sequence[str]:
    """A list that spaces join is a word for each address, where it is not a part of a word."""
    whole = FIELD.fullmatch(argument)
    if whole and whole[2]:
        return separated(_required(whole[1], fields), "WORDS").split(",")
    return [FIELD.sub(lambda found: _joined(_required(found[1], fields), found[2]), argument)]


def _joined(value: str, joiner: str | None) -> str:
    return separated(value, "SPACED").replace(",", " ") if joiner == SPACE else value


def _required(name: str, fields: Mapping[str, str]) -> str:
    if name not in fields:
        raise PreflightError(
            f"template field {{{name}}} has no value",
            hint=f"declare dirs.{name.removesuffix('_dir')} in the cluster file"
            if name.endswith("_dir")
            else f"fields with a value here: {', '.join(sorted(fields))}",
        )
    return fields[name]


@dataclass(frozen=True)
class RankLayout:
    """The ranks of the tasks that train, and where each of them runs."""

    spec: ClusterSpec
    """Job -> addresses, of those who talk to each other."""
    ranks: Mapping[TaskId, int]
    """The tasks that train, in the order of their ranks."""
    beside: Mapping[TaskId, tuple[TaskId, ...]]
    """Task -> the training tasks on its host, including itself, by rank."""
    gpus: Gpus = field(default_factory=dict)
    resizes: bool = False
    """Whether the number of tasks may change: only the tasks in an attempt then have a rank."""

    @classmethod
    def of(cls, cluster: Cluster, spec: ClusterSpec, *, resizes: bool = False) -> RankLayout:
        ranks = {task: rank for rank, task in enumerate(trainers(cluster))}
        here = grouped((cluster.host_of(task).name, task) for task in ranks)
        beside = {task: tuple(tasks) for tasks in here.values() for task in tasks}
        return cls({job: each for job, each in spec.items() if job != EVALUATOR}, ranks, beside, resizes=resizes)

    def number(self, mark: str, value: object) -> str:
        return f"\0{mark}" if self.resizes else str(value)

    @property
    def head(self) -> TaskId:
        """The first by rank."""
        return next(iter(self.ranks))

    def address(self, task: TaskId) -> tuple[str, str]:
        """Host and port."""
        host, _, port = self.spec[task.job][task.index].rpartition(":")
        return host.strip("[]"), port


def pytorch(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """The variables that torchrun sets, for init_method="env://" (pytorch/torch/distributed/rendezvous.py).

    Lightning reads GROUP_RANK, the number of the host (lightning/fabric/plugins/environments/lightning.py).
    """
    host, port = around.address(around.head)
    place = {"MASTER_ADDR": host, "MASTER_PORT": port, "WORLD_SIZE": around.number("SIZE", len(around.ranks))}
    if task not in around.ranks:
        return place
    beside = around.beside[task]
    hosts = list(dict.fromkeys(around.beside[each] for each in around.ranks))
    return {
        **place,
        "RANK": around.number("RANK", around.ranks[task]),
        "GROUP_RANK": around.number("NODE", hosts.index(beside)),
        "GROUP_WORLD_SIZE": around.number("NODES", len(hosts)),
        "LOCAL_RANK": around.number("LOCAL_RANK", beside.index(task)),
        "LOCAL_WORLD_SIZE": around.number("LOCAL_SIZE", len(beside)),
    }


_MOST_GPUS = 16
"""Device ids for a host that declares no GPUs. XLA uses those that exist (xla/service/platform_util.cc)."""


def jax(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """The variables for jax.distributed.initialize(), with arguments from the first three or without arguments.

    It reads JAX_COORDINATOR_ADDRESS and JAX_LOCAL_DEVICE_IDS itself (jax/_src/distributed.py). The number of processes
    and its own it finds only where it takes the program for a step of Slurm (jax/_src/clusters/slurm_cluster.py). There
    it would use one GPU a process; the list of local devices keeps all that the task may use.
    """
    head = around.head
    address = around.spec[head.job][head.index]
    place = {"COORDINATOR_ADDRESS": address, "JAX_COORDINATOR_ADDRESS": address}
    processes = around.number("SIZE", len(around.ranks))
    if task not in around.ranks:
        return {**place, "NUM_PROCESSES": processes}
    number, gpus = around.number("RANK", around.ranks[task]), around.gpus[task]
    hosts = tuple(dict.fromkeys(around.address(each)[0] for each in around.ranks))
    return {
        **place,
        "NUM_PROCESSES": processes,
        "PROCESS_ID": number,
        "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(len(gpus) if gpus else _MOST_GPUS))),
        "SLURM_JOB_ID": "1",  # a port is derived from it where no address is set
        "SLURM_STEP_NODELIST": around.number("NODELIST", ",".join(hosts)),
        "SLURM_STEP_NUM_NODES": around.number("NODES", len(hosts)),
        "SLURM_NTASKS": processes,
        "SLURM_PROCID": number,
        "SLURM_LOCALID": around.number("LOCAL_RANK", around.beside[task].index(task)),
    }


def mxnet(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """The variables of ps-lite (dmlc/ps-lite/docs/env.md). A task that is neither scheduler nor server is a worker."""
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
        "DMLC_NUM_WORKER": around.number("SIZE", sum(count.values()) - servers - count[SCHEDULER]),
        "DMLC_NUM_SERVER": str(servers),
        "DMLC_NODE_HOST": around.address(task)[0],
    }


def cluster_spec(task: TaskId, around: RankLayout) -> Mapping[str, str]:
    """The cluster as JSON, and the task's place in it, as launchers before TF_CONFIG gave them."""
    spec = listed(around.spec) if around.resizes else around.spec
    own = {"JOB_NAME": task.job, "TASK_INDEX": around.number("INDEX", task.index)}
    return {"CLUSTER_SPEC": _json({job: list(addresses) for job, addresses in spec.items()}), **own}


VARIABLES: Mapping[str, Callable[[TaskId, RankLayout], Mapping[str, str]]] = {
    "pytorch": pytorch,
    "jax": jax,
    "mxnet": mxnet,
    "cluster_spec": cluster_spec,
}
"""Dialect -> what it puts into a trainer's environment."""
