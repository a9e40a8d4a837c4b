"""What of a cluster file cannot be said elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.config.cluster import Cluster, Recovery
from dtctl.config.strategies import strategy_of
from dtctl.plan import RunPlan

_USUAL = Recovery()
_KEYS = ("backoff", "reset_after", "repeat", "stall", "first_step", "host_timeout", "min_workers", "bad_host", "retry")


def unsaid(cluster: Cluster, plan: RunPlan, target: str) -> Iterator[str]:
    """A line for each thing that dtctl does over SSH and the exported file does not."""
    strategy, scopes = strategy_of(cluster), {task.scope for task in plan.tasks}
    yield (
        "stall: a task that hangs is not detected and not restarted; checkpoints are not verified before a restart, "
        "and the first failure is not searched for"
    )
    if any(not task.vital for task in plan.tasks):
        yield "jobs.evaluator: its final failure fails the run"
    if "with-lead" in scopes:
        yield f"recovery: the lead is not restarted after a ps of {strategy.value}; all tasks are, or none"
    if target != "jobset" and target != "trainjob" and scopes & {"gang", "with-lead"}:
        yield f"recovery: {target} cannot restart all tasks together, as {strategy.value} needs it"
    for key in _KEYS:
        name = next(one for one in (key, f"{key}_s") if hasattr(_USUAL, one))
        if getattr(cluster.recovery, name) != getattr(_USUAL, name):
            yield f"recovery.{key}: there is nothing like it"
    if cluster.spares or cluster.arbiters:
        yield "spares and arbiters: the scheduler chooses other nodes"
    if cluster.hooks:
        yield f"hooks: nobody is notified by {', '.join(cluster.hooks)}"
    if not cluster.fail_fast:
        yield "fail_fast: a task that is lost for good ends the run"
    if any(job.depends_on for job in cluster.jobs.values()):
        yield "jobs.NAME.depends_on: all jobs start at once"
    if any(job.replicas for job in cluster.jobs.values()):
        yield "jobs.NAME.replicas: the number of tasks is fixed; dtctl scale is not there"
    if cluster.data.source is not None:
        yield "data.from: the data is not pushed; put it where dirs.data is mounted"
    if any(host.env or host.dirs for host in cluster.hosts.values()):
        yield "hosts.NAME.env and hosts.NAME.dirs: tasks keep env of their host; its dirs are not mounted"
    if cluster.trainer.venv or cluster.trainer.python or any(host.python for host in cluster.hosts.values()):
        yield "trainer.venv, trainer.python and hosts.NAME.python: python3 of the image or of the node is used"
    if cluster.target_step is not None:
        yield "target_step: a training that ends short of it is not noticed"
