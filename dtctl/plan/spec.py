"""A plan as the agents read it: one JSON object a host (docs/agent.md, "The spec")."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeVar, cast

from dtctl.agent.records.kinds import fields_of, made
from dtctl.agent.records.spec import (
    FEWEST_VOTERS,
    HOLD_S,
    MAKER_SETTINGS,
    VERSION,
    Environment,
    Member,
    Moved,
    RecoverySpec,
    Setup,
    Spare,
    Spec,
    TaskSpec,
    comes_back_alone,
)
from dtctl.agent.records.values import HOME, paths_of, urls_of
from dtctl.config.cluster import Cluster
from dtctl.config.section import Section
from dtctl.config.strategies import resizes
from dtctl.dataclass import dataclass
from dtctl.model import Revision
from dtctl.plan import RunPlan, TaskPlan, has_address, named_by_others
from dtctl.plan.hosts import brought_along, checkpoint_places, join_address, on_host

_PLACEMENT = ("TF_CONFIG", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")


def digest(cluster: Cluster, bundle: str | None, wheels: str | None = None) -> str:
    """Identifies a run: equal for two `up` with the same content of the file (not its path), code and wheels.

    Taken before ports are moved for a local run: the second `up` of a live run finds them taken by the first.
    """
    values = dataclasses.asdict(cluster)
    _drop_later(cluster, values)
    of_this_machine = ("file", "file_sha256", "as_written", "overrides", "send_anywhere")
    for name in (*of_this_machine, "own_coordinator_port", "settings"):
        del values[name]
    for name in ("code", "env_file", "wheels"):
        del values["trainer"][name]
    for host in values["hosts"].values():
        if not host["reach"].get("forward_agent"):  # as in earlier versions
            host["reach"].pop("forward_agent", None)
        if not host["gpu_numbers"]:  # as in earlier versions
            del host["gpu_numbers"]
    del values["data"]["source"]
    values["hooks"] = {
        name: hook for name, hook in values["hooks"].items() if hook["post"]
    }  # other paths belong to this machine
    for job in values["jobs"].values():
        del job["own_port"], job["replicas"]  # in a live run `dtctl scale` sets how many of these run
    if values["trainer"]["environment"]:
        del values["trainer"]["environment"]["wheels"]  # a path of this machine
        if wheels is not None:
            values["trainer"]["environment"]["wheels"] = wheels
    text = json.dumps([VERSION, values, bundle], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _drop_later(section: object, values: dict[str, Any]) -> None:
    """Drops from a section's values, and from those of sections within it, what is `later` and has its default."""
    if isinstance(section, Mapping):
        for name, value in section.items():
            _drop_later(value, values[name])
    elif isinstance(section, Section):
        for one in dataclasses.fields(section):
            value = getattr(section, one.name)
            if one.metadata.get("later") and value == one.default:
                del values[one.name]
            else:
                _drop_later(value, values[one.name])


def run_spec(
    plan: RunPlan,
    *,
    run: str,
    digest: str,
    bundle: str | None,
    created: float,
    controller: str,
    replaced: Mapping[str, str],
    code: str = "",
    revision: Revision | None = None,
) -> Spec:
    """The spec without the fields of one host.

    It is made once, because its size grows with the number of hosts. `code`: a short digest of the code, in place of
    its path here.
    """
    marked = itertools.chain(*plan.marked.values())
    named = named_by_others({str(task.id): (*task.argv, *task.env.values()) for task in marked})
    return _record(
        Spec,
        plan,
        plan.cluster,
        less=_OF_THE_HOST,
        version=VERSION,
        run=run,
        cluster=plan.cluster.name,
        digest=digest,
        bundle=bundle,
        created=created,
        controller=controller,
        strategy=plan.strategy.value,
        coordinator=plan.coordinator,
        voters=list(plan.voters),
        elected=None,
        term=0,
        replicas={job.name: job.replicas for job in plan.cluster.jobs.values() if job.replicas is not None},
        roster=[
            _record(
                Member,
                task,
                task=str(task.id),
                slot=None,
                addressed=str(task.id) in named,
                listens=task.ready == "listening",
            )
            for task in plan.tasks
        ],
        stages=list(plan.stages),
        lead=str(plan.lead),
        recovery=_record(RecoverySpec, plan.cluster.recovery),
        settings={**plan.cluster.settings, "trainer.code": code},
        overridden=list(plan.cluster.overridden),
        revision=revision and dict(vars(revision)),
        replaced=dict(replaced),
        spares={name: spare_of(plan, name) for name in plan.cluster.standby},
        arbiters=list(plan.cluster.arbiters),
        moved=made(Moved),
        resizes=resizes(plan.cluster),
        movable=bool(plan.marked),
        min_workers=plan.cluster.recovery.min_workers,
        voting=len(plan.voters),
        hold_s=HOLD_S if len(plan.voters) >= FEWEST_VOTERS else None,
    )


@dataclass(frozen=True)
class EnvironmentContent:
    """The files from which the hosts create an environment, identified by their content."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the code, with their SHA-256."""
    wheels: str | None = None
    """The bundle of wheels; None: packages come from an index."""


NO_CONTENT = EnvironmentContent()

_OF_TRAINERS = ("dirs", "brought_along", "checkpoint_dirs")
_OF_THE_HOST = (
    *("host", "tasks", "slots", "environment", "setup", "absent", "keeps_checkpoints_by_url"),
    *_OF_TRAINERS,
)


def host_spec(
    plan: RunPlan, host: str, common: Spec, absent: Iterable[str] = (), *, content: EnvironmentContent = NO_CONTENT
) -> Spec:
    """`common`: the `run_spec` of the plan. `content`: of the environment."""
    first = next(iter(plan.may_run(host)), None)
    slots = plan.slots.get(host, {})
    own: dict[str, object] = {
        "host": host,
        "tasks": [_task(task, plan.cluster) for task in plan.marked.get(host, plan.on_host(host))],
        "slots": {slot: [_task(task, plan.cluster) for task in tasks] for slot, tasks in slots.items()},
        # The data already exists, or dtctl must not create it; it may well be read-only.
        "dirs": sorted(paths_of(place for name, place in plan.dirs[host].items() if name != "data")),
        "brought_along": list(brought_along(plan.cluster, plan.cluster.hosts[host], plan.dirs[host])),
        "environment": environment_of(plan, first, content) if first else None,
        "setup": _setup(plan, first) if first else None,
        "checkpoint_dirs": list(plan.checkpoint_dirs[host]),
        "keeps_checkpoints_by_url": bool(urls_of(checkpoint_places(plan.cluster, plan.dirs[host]))),
        "absent": list(absent),
    }
    if first is None:  # the host only votes
        own |= {"bundle": None, **{name: [] for name in _OF_TRAINERS}}
    return cast("Spec", {**common, **own})


def spare_of(plan: RunPlan, host: str) -> Spare:
    """The record of a spare of the plan."""
    tasks = itertools.chain(*plan.slots[host].values())
    return {
        "address": plan.addresses[host],
        "addresses": {str(task.id): join_address(plan.addresses[host], task.port) for task in tasks},
        "tasks": [],
    }


R = TypeVar("R")


def _record(record: type[R], *sources: object, less: Collection[str] = (), **own: object) -> R:
    """A record with its own values, and the others as the first source has them. `less`: fields that it lacks yet."""
    fields = {
        name: own[name] if name in own else next(getattr(each, name) for each in sources if hasattr(each, name))
        for name in fields_of(record)
        if name not in less
    }
    return cast("R", {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()})


def _task(task: TaskPlan, cluster: Cluster) -> TaskSpec:
    own = comes_back_alone(task.role, task.scope)
    job, trainer = cluster.jobs[task.id.job], cluster.trainer
    return _record(TaskSpec, task, job, trainer, id=str(task.id), env=dict(task.env), code=True, own=own)


def _setup(plan: RunPlan, first: TaskPlan) -> Setup | None:
    text = plan.cluster.trainer.setup
    if text is None:
        return None
    own = {name: value for name, value in first.env.items() if name not in _PLACEMENT}
    return {"text": text, "env": {name: value for name, value in own.items() if not has_address(value)}}


def environment_of(plan: RunPlan, first: TaskPlan, content: EnvironmentContent) -> Environment | None:
    """The environment of this task's host, as far as the file determines it."""
    cluster = plan.cluster
    said, host = cluster.trainer.environment, cluster.hosts[first.host]
    if said is None:
        return None
    python = host.python or said.python
    if python is not None and "/" in python:
        python = on_host(python, cluster.name).replace(HOME, "~")
    return {
        "kind": said.kind,
        "what": said.what,
        "python": python,
        "engine": said.engine or ("apptainer" if said.what.endswith(".sif") else None),
        "options": list(said.options),
        "mounts": sorted(paths_of(plan.dirs[first.host].values())) if said.kind == "container" else [],
        "files": dict(content.files),
        "env": {name: value for name, value in first.env.items() if name.startswith(MAKER_SETTINGS)},
        "wheels": content.wheels,
        "directory": None,
        "container": None,
    }
