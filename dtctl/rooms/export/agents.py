"""A JobSet whose pods run dtctl's agent: the same recovery, checkpoints, status and verdict as over SSH.

Each task has a Job of its own with one pod, whose command (rooms/kubectl/holder.py) reads the plan in a ConfigMap.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dtctl.agent.records.values import is_storage_url
from dtctl.bundle import Bundle
from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import OtherTransport, TaskId, grouped
from dtctl.operations.run_record import RunRecord
from dtctl.operations.up.launch import Start, prepare_launch, up_request
from dtctl.rooms.export.pods import (
    CODE_DIRECTORY,
    HOME_DIRECTORY,
    INDEX,
    Template,
    cluster_on_pods,
    container,
    fitting,
    pod,
    pod_host,
    refuse_secrets,
    secret_variables,
)
from dtctl.rooms.kubectl import holder
from dtctl.rooms.kubectl.transport import CONTAINER, NAME, place
from dtctl.transport import payload

Manifest = dict[str, Any]
JOB_INDEX = "metadata.labels['jobset.sigs.k8s.io/job-index']"
PLAN_DIRECTORY = "/etc/dtctl/plan"
KEYS_FILE = "/etc/dtctl/keys.json"
MOST_BYTES = 1_000_000
"""What a ConfigMap takes, less its own fields (ConfigMap.data in Kubernetes' API: 1 MiB)."""
OF_THE_HOST = ("spec", "credentials", "secrets")


@dataclass(frozen=True)
class WithAgents:
    manifests: tuple[Manifest, ...]
    record: RunRecord
    launch: Start
    warnings: tuple[str, ...]


def with_agents(
    cluster: Cluster, image: str, bundle: Bundle, environ: Mapping[str, str], namespace: str | None
) -> WithAgents:
    """Raises PreflightError for what no pod can have."""
    name = fitting(cluster.name)
    placed = _placed(cluster, name, namespace)
    secrets = cluster.trainer.secrets
    launch = prepare_launch(placed, lambda settings: settings.target, environ, bundle)
    refuse_secrets(launch.plan)
    if hidden := secret_variables(launch.plan):
        raise PreflightError(
            f"the plan holds a secret in {', '.join(hidden)}, which is not exported",
            hint="name the variable in trainer.secrets: pods read it from their Secret",
        )
    if launch.plan.cluster.hosts_choose_ports:
        raise PreflightError("pods do not choose ports", hint="set the port of each job: ports: {worker: 2222}")
    requests = {host.name: up_request(launch, host) for host in launch.record.hosts.values()}
    for one in requests.values():
        for task in one["spec"]["tasks"]:
            task["secrets"] = list(secrets)
    files, keys = _files(requests, secrets), _keys(requests)
    program = Path(holder.__file__).read_text()
    text = {"plan.json": files, "holder.py": program, "manifest.json": bundle.manifest.canonical.decode()}
    binary = {"opening": payload.opening(), "agent": payload.whole()}
    size = sum(len(value.encode()) for value in text.values()) + sum(map(len, binary.values()))
    if size > MOST_BYTES:
        raise PreflightError(
            f"the plan and the agent have {size:,} bytes, and a ConfigMap takes {MOST_BYTES:,}",
            hint="fewer tasks or fewer files of code; or dtctl export jobset without --with-agent",
        )
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{name}-plan"},
        "data": text,
        "binaryData": {key: base64.b64encode(value).decode() for key, value in binary.items()},
    }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-keys"},
        "type": "Opaque",
        "data": {f"{host}.json": base64.b64encode(value.encode()).decode() for host, value in keys.items()},
    }
    jobset = _jobset(cluster, launch, image, name, has_keys=bool(keys))
    made = (config, secret, jobset) if keys else (config, jobset)
    return WithAgents(made, launch.record, launch, tuple(_warnings(cluster, name)))


def _placed(cluster: Cluster, name: str, namespace: str | None) -> Cluster:
    """The cluster with a pod for each task, less what would be read here for it: hooks, and values of secrets."""
    made = cluster_on_pods(cluster, lambda task: f"{_job(name, task)}-0.{name}")
    jobs = {pod_host(task): _job(name, task) for task in made.tasks()}
    hosts = {
        host: dataclasses.replace(one, reach=OtherTransport(NAME, place(jobs[host], namespace)))
        for host, one in made.hosts.items()
    }
    trainer = dataclasses.replace(made.trainer, secrets=(), env_file=None)
    recovery = dataclasses.replace(made.recovery, reboot="never")
    return dataclasses.replace(made, hosts=hosts, trainer=trainer, recovery=recovery, hooks={})


def _job(name: str, task: TaskId) -> str:
    """The name of the Job of a task (jobset/pkg/util/placement: NAME-REPLICATEDJOB-INDEX)."""
    return f"{name}-{fitting(task.job)}-{task.index}"


def _files(requests: Mapping[str, Mapping[str, Any]], secrets: tuple[str, ...]) -> str:
    """What all requests have alike is written once: a plan grows with the hosts, not with their square."""
    first = next(iter(requests.values()))
    shared = _alike(requests.values(), first, OF_THE_HOST)
    spec = _alike([one["spec"] for one in requests.values()], first["spec"], ())
    hosts = {
        host: {
            "request": {key: value for key, value in one.items() if key not in shared and key not in OF_THE_HOST},
            "spec": {key: value for key, value in one["spec"].items() if key not in spec},
            "has_credentials": one["credentials"] is not None,
        }
        for host, one in requests.items()
    }
    return json.dumps({"shared": {**shared, "spec": spec}, "hosts": hosts, "secrets": list(secrets)}, sort_keys=True)


def _alike(every: Any, first: Mapping[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    every = list(every)
    kept = {key: value for key, value in first.items() if key not in without}
    return {key: value for key, value in kept.items() if all(one[key] == value for one in every)}


def _keys(requests: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {host: json.dumps(one["credentials"]) for host, one in requests.items() if one["credentials"] is not None}


def _jobset(cluster: Cluster, launch: Start, image: str, name: str, *, has_keys: bool) -> Manifest:
    replicated = []
    for job, tasks in grouped((task.id.job, task) for task in launch.plan.tasks).items():
        counts = {len(task.gpus or ()) for task in tasks}
        if len(counts) > 1:
            raise PreflightError(
                f"the tasks of {job} have different numbers of GPUs, and pods of one job have the same",
                hint="put them into jobs of their own",
            )
        template = dataclasses.replace(_command(job), gpus=counts.pop())
        own = container(CONTAINER, image, template, _environment(cluster, name))
        spec = pod(cluster, own, name, "Never")
        _mount(spec, name, job, has_keys=has_keys)
        found: Manifest = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimit": 0}
        codes = {"containerName": CONTAINER, "operator": "In", "values": [holder.FAILED, holder.REFUSED]}
        found["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
        if cluster.active_deadline_s is not None:
            found["activeDeadlineSeconds"] = round(cluster.active_deadline_s)
        row = {
            "name": fitting(job),
            "replicas": len(tasks),
            "template": {"spec": {**found, "template": {"spec": spec}}},
        }
        replicated.append(row)
    rules = [{"name": "ended", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]
    spec = {
        "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All"},
        "failurePolicy": {"maxRestarts": cluster.recovery.max_run_restarts, "rules": rules},
    }
    if cluster.ttl_s is not None:
        spec["ttlSecondsAfterFinished"] = round(cluster.ttl_s)
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "dtctl"}}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata}
    return {**kind, "spec": {**spec, "replicatedJobs": replicated}}


def _command(job: str) -> Template:
    host = f"{job}-$({INDEX})"
    words = ("python3", "-IS", f"{PLAN_DIRECTORY}/holder.py", PLAN_DIRECTORY, KEYS_FILE, CODE_DIRECTORY, host)
    return Template(words, {}, 0)


def _environment(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """Variables of the container: those of tasks are in the plan."""
    index = {"name": INDEX, "valueFrom": {"fieldRef": {"fieldPath": JOB_INDEX}}}
    secrets = [
        {"name": one, "valueFrom": {"secretKeyRef": {"name": f"{name}-secrets", "key": one}}}
        for one in cluster.trainer.secrets
    ]
    return [index, {"name": "HOME", "value": HOME_DIRECTORY}, *secrets]


def _mount(spec: Manifest, name: str, job: str, *, has_keys: bool) -> None:
    """Adds the plan, the home directory with the run's files, and the credentials of the pod's host alone."""
    (own,) = spec["containers"]
    kept = [
        {"name": "plan", "configMap": {"name": f"{name}-plan"}},
        {"name": "home", "emptyDir": {}},
    ]
    mounts: list[Manifest] = [
        {"name": "plan", "mountPath": PLAN_DIRECTORY, "readOnly": True},
        {"name": "home", "mountPath": HOME_DIRECTORY},
    ]
    if has_keys:
        kept.append({"name": "keys", "secret": {"secretName": f"{name}-keys"}})
        file = f"{job}-$({INDEX}).json"
        mounts.append({"name": "keys", "mountPath": KEYS_FILE, "subPathExpr": file, "readOnly": True})
    own["volumeMounts"] = [*mounts, *own.get("volumeMounts", ())]
    spec["volumes"] = [*kept, *spec.get("volumes", ())]


def _warnings(cluster: Cluster, name: str) -> Iterator[str]:
    """What is not as over SSH."""
    restarts = cluster.recovery.max_run_restarts
    yield f"a lost pod: all start anew, at most {restarts} times, and continue from the newest checkpoint"
    if any(not is_storage_url(one) for one in cluster.dirs.values()):
        yield f"checkpoints have to be on a claim that all pods can write, as {name}-output"
    if cluster.spares or cluster.arbiters:
        yield "spares and arbiters: the scheduler chooses other nodes"
    if cluster.hooks:
        yield f"hooks: nobody is notified by {', '.join(cluster.hooks)}"
    if cluster.data.source is not None:
        yield "data.from: the data is not pushed; put it where dirs.data is mounted"
    if cluster.trainer.venv or cluster.trainer.python or any(host.python for host in cluster.hosts.values()):
        yield "trainer.venv, trainer.python and hosts.NAME.python: python3 of the image is used"
    if cluster.trainer.setup:
        yield "trainer.setup: it runs in each pod, too, not in the image alone"
