"""Which GPUs of its host a task sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dtctl.errors import PreflightError
from dtctl.strategies import gpus_wanted

if TYPE_CHECKING:
    from dtctl.model import Cluster, Host, Job, TaskId


def visible_gpus(cluster: Cluster) -> Mapping[TaskId, tuple[int, ...] | None]:
    """What each task sees: its own share, and with the dialect pytorch those of all such tasks of the host.

    A trainer for torchrun takes the one of its LOCAL_RANK.
    """
    shares = share_gpus(cluster)
    together: dict[str, set[int]] = {}
    for task in _for_torchrun(cluster):
        together.setdefault(cluster.host_of(task).name, set()).update(shares[task] or ())
    seen = {task: tuple(sorted(together[cluster.host_of(task).name])) for task in _for_torchrun(cluster)}
    return {task: share and seen.get(task, share) for task, share in shares.items()}


def _for_torchrun(cluster: Cluster) -> list[TaskId]:
    return [task for task in cluster.tasks() if cluster.jobs[task.job].launch.dialect == "pytorch"]


def share_gpus(cluster: Cluster) -> Mapping[TaskId, tuple[int, ...] | None]:
    """Each task's GPUs; None where the host declares none and the task may find its own."""
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
    shares: dict[TaskId, tuple[int, ...] | None] = {}
    first = 0
    for task, count in counts.items():
        shares[task] = tuple(range(first, first + count))
        first += count
    return shares
