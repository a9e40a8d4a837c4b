"""The plan of a cluster whose tasks each have a machine of their own, and what pods of one job share. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtctl.agent.host.secrets import hide_variable, hide_words
from dtctl.agent.records.values import CODE, HOME, PATH, PYTHON, is_storage_url
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import OtherTransport, TaskId
from dtctl.plan import RunPlan, TaskPlan
from dtctl.plan.hosts import checkpoint_places, on_host, visible_gpus
from dtctl.plan.run import plan_run

PORT = 2222
CODE_DIRECTORY = "/workspace"
HOME_DIRECTORY = "/home/train"
INDEX = "TASK_INDEX"
"""The variable that holds a pod's index."""

_MARKS = {CODE: CODE_DIRECTORY, HOME: HOME_DIRECTORY, PYTHON: "python3", PATH: "$(PATH)"}
_DIGITS = re.compile(r"(\d+)")


def on_pods(cluster: Cluster, address: Callable[[TaskId], str], port: int = PORT) -> RunPlan:
    """The plan with a host for each task, at that address; the image has the Python and the code."""
    return plan_run(cluster_on_pods(cluster, address, port), {}, local_python="python3")


def pod_host(task: TaskId) -> str:
    """The name of the host that is the pod of a task."""
    return f"{task.job}-{task.index}"


def cluster_on_pods(cluster: Cluster, address: Callable[[TaskId], str], port: int = PORT) -> Cluster:
    own = {task: pod_host(task) for task in running(cluster)}
    gpus = visible_gpus(cluster)
    hosts = {
        name: dataclasses.replace(
            cluster.host_of(task),
            name=name,
            reach=OtherTransport("pod", name),
            address=address(task),
            gpus=len(gpus[task] or ()),
            python=None,
        )
        for task, name in own.items()
    }
    jobs = {
        name: dataclasses.replace(
            job,
            hosts=tuple(own[task] for task in own if task.job == name),
            ports=(port,) * sum(task.job == name for task in own),
            replicas=None,
        )
        for name, job in cluster.jobs.items()
    }
    trainer = dataclasses.replace(cluster.trainer, environment=None, venv=None, python=None)
    recovery = dataclasses.replace(cluster.recovery, min_workers=None)
    return dataclasses.replace(
        cluster, hosts=hosts, jobs=jobs, trainer=trainer, recovery=recovery, spares=(), arbiters=()
    )


def refuse_secrets(plan: RunPlan) -> None:
    """Raises PreflightError for a secret in a command: the exported file would hold it."""
    for task in plan.tasks:
        if hide_words(task.argv) != list(task.argv):
            raise PreflightError(
                f"the command of {task.id} holds a secret, which is not exported",
                hint="name a variable in trainer.secrets, and let the trainer read that",
            )


def secret_variables(plan: RunPlan) -> tuple[str, ...]:
    """Variables of the file whose values look like secrets."""
    pairs = ((name, value) for task in plan.tasks for name, value in task.env.items())
    return tuple(dict.fromkeys(name for name, value in pairs if hide_variable(name, value) != value))


def running(cluster: Cluster) -> tuple[TaskId, ...]:
    """The tasks that start: the first ones of a job with `replicas`."""
    sizes = {job.name: job.replicas for job in cluster.jobs.values()}
    return tuple(task for task in cluster.tasks() if task.index < (sizes[task.job] or task.index + 1))


def in_pod(text: str) -> str:
    """The text for a manifest: marks as paths, and `$(` as Kubernetes leaves it alone."""
    text = text.replace("$(", "$$(")
    for mark, place in _MARKS.items():
        text = text.replace(mark, place)
    return text


@dataclass(frozen=True)
class Template:
    """What all pods of a job share; `$(TASK_INDEX)` stands for their index."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    gpus: int


def template_of(tasks: Sequence[TaskPlan], *, without: Sequence[str] = ()) -> Template | None:
    """None if the tasks differ in more than their index."""
    if len({len(task.gpus or ()) for task in tasks}) > 1:
        return None
    if len({len(task.argv) for task in tasks}) > 1 or len({tuple(task.env) for task in tasks}) > 1:
        return None
    words = [shared([in_pod(task.argv[at]) for task in tasks]) for at in range(len(tasks[0].argv))]
    names = [name for name in tasks[0].env if name not in _hidden(tasks[0]) and name not in without]
    env = {name: shared([in_pod(task.env[name]) for task in tasks]) for name in names}
    if None in words or None in env.values():
        return None
    command = tuple(word for word in words if word is not None)
    own = {name: value for name, value in env.items() if value is not None}
    return Template(command, own, len(tasks[0].gpus or ()))


def _hidden(task: TaskPlan) -> tuple[str, ...]:
    """Variables that say which GPUs a task has: a pod sees its own only."""
    return ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER") if task.gpus or task.gpus is None else ()


def shared(texts: Sequence[str]) -> str | None:
    """One text for all, with the index as a variable; None if there is none."""
    if len(set(texts)) == 1:
        return texts[0]
    rows = [_DIGITS.split(text) for text in texts]
    if len({tuple(row[::2]) for row in rows}) > 1:
        return None
    found = []
    for at, column in enumerate(zip(*rows, strict=True)):
        if len(set(column)) == 1:
            found.append(column[0])
        elif at % 2 and list(column) == [str(index) for index in range(len(rows))]:
            found.append(f"$({INDEX})")
        else:
            return None
    return "".join(found)


def variables(
    template: Template, secrets: Sequence[str], secret: str, index: str, known: str | None = None
) -> list[dict[str, Any]]:
    """`env` of a container. `index`: the field of the pod that holds its index; `known`: the index in its place."""
    own = {"valueFrom": {"fieldRef": {"fieldPath": index}}} if known is None else {"value": known}
    found: list[dict[str, Any]] = [{"name": INDEX, **own}]
    hidden = [name for name, value in template.env.items() if hide_variable(name, value) != value]
    found += [{"name": name, "value": value} for name, value in template.env.items() if name not in hidden]
    names = dict.fromkeys([*secrets, *hidden])
    return found + [{"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name}}} for name in names]


def volumes(cluster: Cluster, name: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts of the directories that are no storage URLs: claims for data and output, scratch for the
    others.
    """
    places = {key: on_host(path, cluster.name) for key, path in cluster.dirs.items()}
    checkpoints = checkpoint_places(cluster, places)
    if checkpoints and checkpoints[0] not in places.values():
        places["checkpoints"] = checkpoints[0]
    kept, mounts = [], []
    for key, place in places.items():
        if is_storage_url(place):
            continue
        claim = {"persistentVolumeClaim": {"claimName": f"{name}-{key}"}}
        kept.append({"name": key, **(claim if key in ("data", "output", "checkpoints") else {"emptyDir": {}})})
        mounts.append({"name": key, "mountPath": in_pod(place), **({"readOnly": True} if key == "data" else {})})
    return kept, mounts


def pod(cluster: Cluster, container: dict[str, Any], name: str, policy: str | None) -> dict[str, Any]:
    """The specification of a pod."""
    kept, mounts = volumes(cluster, name)
    own = {**container, **({"volumeMounts": mounts} if mounts else {})}
    found: dict[str, Any] = {"restartPolicy": policy} if policy else {}
    found["terminationGracePeriodSeconds"] = max(1, round(cluster.grace_s))
    return {**found, "containers": [own], **({"volumes": kept} if kept else {})}


def container(title: str, image: str, template: Template, env: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": title, "image": image, "command": list(template.command), "env": env}
    found["workingDir"] = CODE_DIRECTORY
    found["ports"] = [{"name": "tfjob-port", "containerPort": PORT}]
    if template.gpus:
        found["resources"] = {"limits": {"nvidia.com/gpu": template.gpus}}
    return found


def fitting(name: str) -> str:
    """A name as Kubernetes takes it (RFC 1123), short enough for those that are made from it."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-")[:40].rstrip("-") or "training"
