"""The strategies, and what follows from each: which tasks need which, and what a loss restarts. Pure.

Why each is as it is: docs/recovery.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from dtctl.config.cluster import Cluster, Job, Recovery
from dtctl.model import LEAD_JOBS, TaskId

PS, WORKER, EVALUATOR = "ps", "worker", "evaluator"
SCHEDULER, SERVER = KVSTORE_JOBS = ("scheduler", "server")
"""The job names of MXNet's dist kvstore."""

CPU_JOBS = (PS, EVALUATOR)
"""Jobs that see no GPU unless configured: TensorFlow would take all the memory of every GPU that it sees."""

Role = Literal["lead", "ps", "worker", "evaluator", "other"]
Scope = Literal["task", "with-lead", "gang"]
"""What the loss of a task restarts: it alone, it and then the lead, or every task."""


class Strategy(str, Enum):
    """How the tasks train together."""

    ASYNC_PS = "async-ps"
    IN_GRAPH = "in-graph"
    SYNC_PS = "sync-ps"
    PS_STRATEGY = "ps-strategy"
    COLLECTIVE = "collective"
    KVSTORE = "kvstore"
    SINGLE = "single"
    """The lead trains alone; all other tasks assist it."""

    @property
    def keeps_parameters_on_ps(self) -> bool:
        return self in (Strategy.ASYNC_PS, Strategy.IN_GRAPH, Strategy.SYNC_PS, Strategy.PS_STRATEGY)


_LOSSES: Mapping[Strategy, Mapping[Literal["worker", "ps", "lead"], Scope]] = {
    Strategy.ASYNC_PS: {"worker": "task", "ps": "task", "lead": "task"},
    Strategy.IN_GRAPH: {"worker": "task", "ps": "task", "lead": "task"},
    Strategy.SYNC_PS: {"worker": "task", "ps": "gang", "lead": "gang"},
    Strategy.PS_STRATEGY: {"worker": "task", "ps": "with-lead", "lead": "task"},
    Strategy.COLLECTIVE: {"worker": "gang", "ps": "gang", "lead": "gang"},
    Strategy.KVSTORE: {"worker": "gang", "ps": "gang", "lead": "gang"},
    Strategy.SINGLE: {"worker": "task", "ps": "task", "lead": "task"},
}

_SETTLE_S = 30.0
_SYNC_SETTLE_S = 150.0
"""The chief of SyncReplicasOptimizer closes for 120 s after its last step (stop_grace_period_secs of its session)."""


def strategy_of(cluster: Cluster) -> Strategy:
    """The declared one, or what dialect and jobs imply: a `ps` job, several trainers without one, or a lead alone."""
    if cluster.strategy in ("mirrored", "ddp"):
        return Strategy.COLLECTIVE
    if cluster.strategy != "auto":
        return Strategy(cluster.strategy)
    if any(job.launch.dialect == "mxnet" for job in cluster.jobs.values()):
        return Strategy.KVSTORE
    if PS in cluster.jobs:
        return Strategy.ASYNC_PS
    return Strategy.COLLECTIVE if len(trainers(cluster)) > 1 else Strategy.SINGLE


def trainers(cluster: Cluster) -> tuple[TaskId, ...]:
    """The tasks that train: the lead first, the others in the order of the file."""
    lead = cluster.lead
    others = [task for task in cluster.tasks() if task.job in (lead.job, WORKER, *LEAD_JOBS)]
    return (lead, *(task for task in others if task != lead))


def resizes(cluster: Cluster) -> bool:
    """Whether tasks that train together can start again with fewer: each gets the names of those that take part."""
    said, strategy = {job.launch.dialect for job in cluster.jobs.values()}, strategy_of(cluster)
    if strategy in (Strategy.ASYNC_PS, Strategy.SINGLE) or "none" in said or cluster.tf_config.sparse:
        return False
    known = {PS, EVALUATOR, *(KVSTORE_JOBS if strategy is Strategy.KVSTORE else ())}
    train = trainers(cluster)
    is_known = set(cluster.jobs) <= known.union(task.job for task in train)
    return is_known and len(train) > 1 and cluster.data.shard == "none"


def role_of(task: TaskId, lead: TaskId) -> Role:
    if task == lead:
        return "lead"
    if task.job == PS:
        return "ps"
    if task.job == EVALUATOR:
        return "evaluator"
    return "worker" if task.job in (WORKER, *LEAD_JOBS) else "other"


def scope_of(role: Role, strategy: Strategy, recovery: Recovery) -> Scope:
    """What the loss of such a task restarts. An evaluator does not train, so its loss affects no other task."""
    if role == "evaluator":
        return "task"
    if recovery.mode in ("task", "gang"):
        return recovery.mode
    return _LOSSES[strategy]["worker" if role == "other" else role]


def serves(role: Role, strategy: Strategy) -> bool:
    """Whether others need the task to the last of their steps: a server, which never ends by itself."""
    return role == "ps" or (role == "worker" and strategy in (Strategy.IN_GRAPH, Strategy.PS_STRATEGY))


def gpus_wanted(job: Job) -> int | None:
    """The GPUs that each task of the job gets; None: an even share."""
    if job.gpus_per_task is not None:
        return job.gpus_per_task
    return 0 if job.name in CPU_JOBS or (job.launch.dialect == "mxnet" and job.name in KVSTORE_JOBS) else None


def settle_s(cluster: Cluster) -> float:
    """How long the others may take to end by themselves after the success."""
    if cluster.settle_s is not None:
        return cluster.settle_s
    return _SYNC_SETTLE_S if strategy_of(cluster) is Strategy.SYNC_PS else _SETTLE_S


def parties(cluster: Cluster) -> Mapping[str, tuple[TaskId, ...]]:
    """The tasks that need the same: the lead, by its own name, and by the name of each job its other tasks."""
    lead = cluster.lead
    others = {job: tuple(task for task in cluster.tasks() if task.job == job and task != lead) for job in cluster.jobs}
    return {str(lead): (lead,), **{job: tasks for job, tasks in others.items() if tasks}}


def waits(cluster: Cluster) -> Mapping[str, tuple[str, ...]]:
    """The parties that each party waits for: those of the jobs that the file names, else what its strategy needs."""
    members = parties(cluster)
    return {
        name: tuple(other for other in _awaited(tasks[0], cluster) if other in members and other != name)
        for name, tasks in members.items()
    }


def _awaited(task: TaskId, cluster: Cluster) -> Iterator[str]:
    lead, text = cluster.lead, cluster.jobs[task.job].depends_on
    if text is None:
        yield from _usually_awaited(role_of(task, lead), strategy_of(cluster), str(lead))
        return
    for job in text:
        if job == lead.job:
            yield str(lead)
        yield job


def _usually_awaited(role: Role, strategy: Strategy, lead: str) -> tuple[str, ...]:
    if role == "evaluator":
        return (lead,)
    if strategy in (Strategy.ASYNC_PS, Strategy.SYNC_PS):
        return {"lead": (PS,), "worker": (PS, lead)}.get(role, ())
    if strategy in (Strategy.IN_GRAPH, Strategy.PS_STRATEGY) and role == "lead":
        return (PS, WORKER)  # it connects to them, and they wait for it
    return ()


def circle(waits: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """A cycle of parties that wait for each other, each for the next, the last for the first; empty if none."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1]  # each waits for the previous one; after the last comes the first again
        return tuple(reversed(ring[1:]))
    return ()
