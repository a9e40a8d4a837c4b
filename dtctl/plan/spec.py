"""A plan as the agents read it: one JSON object a host (docs/agent.md, "The spec")."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, cast

from dtctl.agent.records.spec import VERSION, Member, RecoverySpec, Setup, Spec, TaskSpec, comes_back_alone
from dtctl.plan.hosts import brought_along

if TYPE_CHECKING:
    from dtctl.model import Cluster
    from dtctl.plan.roster import RunPlan, TaskPlan

_PLACEMENT = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES")


def digest(cluster: Cluster, bundle: str | None) -> str:
    """What makes two `up` the same: all that the file says, less where it lies, and the code.

    Taken before ports are moved for a local run: the second `up` of a live run finds them taken by the first.
    """
    said = dataclasses.asdict(cluster)
    del said["file"], said["file_sha256"], said["as_written"], said["trainer"]["code"], said["trainer"]["env_file"]
    del said["own_coordinator_port"]
    said["hooks"] = {name: hook for name, hook in said["hooks"].items() if hook["post"]}  # others are this machine's
    for job in said["jobs"].values():
        del job["own_port"]
    text = json.dumps([VERSION, said, bundle], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def host_spec(
    plan: RunPlan,
    host: str,
    *,
    run: str,
    digest: str,
    bundle: str | None,
    created: float,
    controller: str,
    replaced: Mapping[str, str],
    absent: Iterable[str] = (),
) -> Spec:
    cluster = plan.cluster
    tasks = plan.on_host(host)
    return {
        "version": VERSION,
        "run": run,
        "cluster": cluster.name,
        "host": host,
        "digest": digest,
        "bundle": bundle,
        "copied": True,
        "created": created,
        "controller": controller,
        "strategy": plan.strategy.value,
        "coordinator": {
            "host": plan.coordinator.host,
            "address": plan.coordinator.address,
            "port": plan.coordinator.port,
        },
        "roster": [_place(task) for task in plan.tasks],
        "stages": [
            {
                "name": stage.name,
                "tasks": [str(task) for task in stage.tasks],
                "after": list(stage.after),
                "held": stage.held,
            }
            for stage in plan.stages
        ],
        "lead": str(plan.lead),
        "success": plan.success,
        "tasks": [_task(task) for task in tasks],
        # Data is there already, or it is not for us to make; it may well be read-only.
        "dirs": sorted(path for name, path in plan.dirs[host].items() if name != "data"),
        "brought_along": list(brought_along(cluster, cluster.hosts[host], plan.dirs[host])),
        "setup": _setup(plan, tasks[0]) if tasks else None,
        "recovery": _recovery(cluster),
        "needs_checkpoint": plan.needs_checkpoint,
        "settle_s": plan.settle_s,
        "grace_s": cluster.grace_s,
        "fail_fast": cluster.fail_fast,
        "start_timeout_s": cluster.start_timeout_s,
        "active_deadline_s": cluster.active_deadline_s,
        "ttl_s": cluster.ttl_s,
        "keep": cluster.keep,
        "log_limit_bytes": cluster.log_limit_bytes,
        "target_step": plan.target_step,
        "checkpoint_dirs": list(plan.checkpoint_dirs[host]),
        "replaced": dict(replaced),
        "absent": list(absent),
    }


def _place(task: TaskPlan) -> Member:
    return {
        "task": str(task.id),
        "host": task.host,
        "address": task.address,
        "role": task.role,
        "scope": task.scope,
        "vital": task.vital,
        "decides": task.decides,
        "serves": task.serves,
    }


def _recovery(cluster: Cluster) -> RecoverySpec:
    """Less the mode, which stands in the scopes of the roster."""
    said = dataclasses.asdict(cluster.recovery)
    del said["mode"]
    said.update(retry=list(cluster.recovery.retry), permanent=list(cluster.recovery.permanent))
    return cast("RecoverySpec", said)


def _task(task: TaskPlan) -> TaskSpec:
    return {
        "id": str(task.id),
        "argv": list(task.argv),
        "env": dict(task.env),
        "secrets": list(task.secrets),
        "port": task.port,
        "code": True,
        "keep_proxy": task.keep_proxy,
        "ready": task.ready,
        "own": comes_back_alone(task.role, task.scope),
    }


def _setup(plan: RunPlan, first: TaskPlan) -> Setup | None:
    text = plan.cluster.trainer.setup
    if text is None:
        return None
    return {"text": text, "env": {name: value for name, value in first.env.items() if name not in _PLACEMENT}}
