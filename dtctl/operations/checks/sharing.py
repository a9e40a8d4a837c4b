"""Whether the checkpoint directory lies as the strategy needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dtctl.agent.records.checks import StorageFacts
from dtctl.model import TaskId
from dtctl.operations.checks.programs import Needs
from dtctl.operations.checks.topic import Said, Scene, found, shown
from dtctl.operations.diagnosis.signature import Finding
from dtctl.plan.roster import RunPlan
from dtctl.strategies import Strategy


def savers(plan: RunPlan) -> frozenset[str]:
    """Hosts that may write parts of a checkpoint: the lead's, and those of its ps, or of all that train in step."""
    roles = {"lead"}
    if plan.strategy.keeps_parameters_on_ps:
        roles.add("ps")
    elif plan.strategy is Strategy.COLLECTIVE:
        roles.add("worker")
    return frozenset(task.host for task in plan.tasks if task.role in roles)


def concerned(plan: RunPlan) -> tuple[str, ...]:
    """Other hosts that have to see, or would gain by seeing, what the lead's host writes."""
    wanted = savers(plan) | {task.host for task in plan.tasks if task.role == "evaluator"}
    return tuple(host for host in plan.hosts if host in wanted and host != plan.coordinator.host)


def judge(scene: Scene, looked: Mapping[str, StorageFacts]) -> Iterator[Finding]:
    plan = scene.plan
    lead = plan.coordinator.host
    blind: dict[str, list[str]] = {}
    for host, told in looked.items():
        for one in told["looked"]:
            if lead not in one["seen"] and one["path"] in plan.checkpoint_dirs[host]:
                blind.setdefault(one["path"], []).append(host)
    for path, hosts in blind.items():
        for row, roles in _rows(scene):
            tasks = _tasks(plan, hosts, roles)
            if tasks:
                places = dict.fromkeys(task.host for task in plan.tasks if task.id in tasks)
                yield found(row, places, tasks, where=shown(path), lead=lead, setting=_setting(plan))


def _setting(plan: RunPlan) -> str:
    """What in the cluster file says where the checkpoints lie."""
    return "checkpoint.dir" if plan.cluster.checkpoint_dir is not None else "dirs.output"


def _rows(scene: Scene) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What it means, and for tasks of which roles."""
    plan = scene.plan
    yield "checkpoints_not_seen", ("evaluator",)
    if plan.strategy.keeps_parameters_on_ps:
        uses = scene.needs.get(plan.lead.job, Needs()).uses
        if "saves_alone" not in uses:
            yield ("checkpoints_not_shared" if "saves_sharded" in uses else "checkpoints_perhaps_not_shared"), ("ps",)
    elif plan.strategy is Strategy.COLLECTIVE:
        yield "restarts_apart", ("worker",)


def _tasks(plan: RunPlan, hosts: Iterable[str], roles: Iterable[str]) -> tuple[TaskId, ...]:
    there = set(hosts)
    return tuple(task.id for task in plan.tasks if task.role in roles and task.host in there)


def tell(scene: Scene, looked: Mapping[str, StorageFacts]) -> Iterator[Said]:
    """Who sees the checkpoint directory of the lead's host."""
    lead = scene.plan.coordinator.host
    seeing: dict[str, list[str]] = {}
    for host, told in looked.items():
        for one in told["looked"]:
            seeing.setdefault(one["path"], []).extend([host] if lead in one["seen"] else [])
    for path, hosts in seeing.items():
        where = shown(path)
        if hosts:
            yield Said("shared", {"where": where, "hosts": (lead, *hosts)})
        else:
            yield Said("not_shared", {"where": where, "lead": lead})
