"""JobSet, TrainJob and TFJob of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dtctl.config.cluster import Cluster
from dtctl.dataclass import dataclass
from dtctl.errors import PreflightError
from dtctl.model import grouped
from dtctl.plan import RunPlan, TaskPlan
from dtctl.rooms.export.groups import Group, differences, grouped_plan
from dtctl.rooms.export.pods import Template, container, fitting, on_pods, pod, template_of, variables

COMPLETION_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
REPLICA_INDEX = "metadata.labels['training.kubeflow.org/replica-index']"
Manifest = dict[str, Any]


@dataclass(frozen=True)
class Exported:
    manifests: tuple[Manifest, ...]
    plan: RunPlan
    warnings: tuple[str, ...] = ()


def jobset(cluster: Cluster, image: str) -> Exported:
    name = fitting(cluster.name)
    plan, groups = grouped_plan(cluster, lambda group, index: pod_name(name, group, index))
    spec, warnings = _jobset_spec(cluster, groups, image, name, "trainer")
    metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "dtctl"}}
    found = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    return Exported((found,), plan, tuple(warnings))


def trainjob(cluster: Cluster, image: str) -> Exported:
    """A runtime without a framework's policy, and the TrainJob that uses it."""
    name = fitting(cluster.name)
    plan, groups = grouped_plan(cluster, lambda group, index: pod_name(name, group, index))
    spec, warnings = _jobset_spec(cluster, groups, image, name, "node")
    ttl = spec.pop("ttlSecondsAfterFinished", None)
    if ttl is not None:
        warnings.append("ttl: a TrainJob stays until it is deleted")
    trains = "worker" if "worker" in cluster.jobs else cluster.lead.job
    rows = [one for one in spec["replicatedJobs"] if one["name"] == fitting(trains)]
    tasks = [task for task in plan.tasks if task.id.job == trains]
    if rows[0]["template"]["spec"]["completions"] < len(tasks):
        raise _differ(trains, tasks, "a TrainJob")
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    rows[0]["template"] = {"metadata": {"labels": labels}, **rows[0]["template"]}
    nodes = rows[0]["template"]["spec"]["completions"]
    group = "trainer.kubeflow.org"
    runtime = {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": f"{name}-runtime", "labels": {f"{group}/framework": "tensorflow"}},
        "spec": {"mlPolicy": {"numNodes": nodes}, "template": {"spec": spec}},
    }
    own: Manifest = {
        "runtimeRef": {"apiGroup": group, "kind": "TrainingRuntime", "name": f"{name}-runtime"},
        "trainer": {"numNodes": nodes},
    }
    if cluster.active_deadline_s is not None:
        own["activeDeadlineSeconds"] = round(cluster.active_deadline_s)
    job = {"apiVersion": f"{group}/v1alpha1", "kind": "TrainJob", "metadata": {"name": name}, "spec": own}
    return Exported((runtime, job), plan, tuple(warnings))


def pod_name(name: str, group: str, index: int) -> str:
    """The name of a pod in the headless service of its JobSet (jobset/api/jobset/v1alpha2/jobset_types.go)."""
    return f"{name}-{group}-0-{index}.{name}"


def _differ(job: str, tasks: Sequence[TaskPlan], kind: str, without: Sequence[str] = ()) -> PreflightError:
    found = list(differences(tasks, without=without))
    return PreflightError(
        f"the tasks of {job} differ in more than their index, which {kind} cannot say",
        detail=f"they differ in {', '.join(found)}" if found else "",
        hint="dtctl export jobset    has a job for each group of equal tasks",
    )


def _jobset_spec(
    cluster: Cluster, groups: Sequence[Group], image: str, name: str, title: str
) -> tuple[Manifest, list[str]]:
    replicated, of_task, deciding, secret = [], [], [], f"{name}-secrets"
    for group in groups:
        tasks, template = list(group.tasks), group.template
        env = variables(template, cluster.trainer.secrets, secret, COMPLETION_INDEX, group.index)
        spec = _job_spec(cluster, tasks, pod(cluster, container(title, image, template, env), name, "Never"), title)
        replicated.append({"name": group.name, "replicas": 1, "template": {"spec": spec}})
        if tasks[-1].scope == "task":
            of_task.append(group.name)
        if any(task.decides for task in tasks):
            deciding.append(group.name)
    found: Manifest = {
        "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": deciding},
        "failurePolicy": _failure_policy(cluster, of_task),
    }
    if cluster.ttl_s is not None:
        found["ttlSecondsAfterFinished"] = round(cluster.ttl_s)
    return {**found, "replicatedJobs": replicated}, []


def _failure_policy(cluster: Cluster, of_task: list[str]) -> Manifest:
    """Jobs whose tasks restart alone have used up their restarts; the others restart with all."""
    said = cluster.recovery
    rules = [{"name": "permanent", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]
    if of_task:
        rules.append({"name": "restarted", "action": "FailJobSet", "targetReplicatedJobs": of_task})
    return {"maxRestarts": min(said.max_restarts, said.max_run_restarts), "rules": rules}


def _job_spec(cluster: Cluster, tasks: list[TaskPlan], spec: Manifest, title: str) -> Manifest:
    count, alone = len(tasks), tasks[-1].scope == "task"
    found: Manifest = {"completionMode": "Indexed", "completions": count, "parallelism": count}
    if alone:
        found |= {"backoffLimitPerIndex": cluster.recovery.max_restarts, "maxFailedIndexes": 0}
    else:
        found["backoffLimit"] = 0
    if cluster.recovery.permanent:
        codes = {
            "containerName": title,
            "operator": "In",
            "values": [code for code in cluster.recovery.permanent if code],
        }
        found["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    decides = [at for at, task in enumerate(tasks) if task.decides]
    if decides and len(decides) < count:
        found["successPolicy"] = {"rules": [{"succeededIndexes": ",".join(map(str, decides))}]}
    if cluster.active_deadline_s is not None:
        found["activeDeadlineSeconds"] = round(cluster.active_deadline_s)
    return {**found, "template": {"spec": spec}}


_ROLES = {"ps": "PS", "worker": "Worker", "chief": "Chief", "master": "Master", "evaluator": "Evaluator"}


def tfjob(cluster: Cluster, image: str) -> Exported:
    """The operator sets TF_CONFIG itself. Raises PreflightError for a job that it does not know."""
    name = fitting(cluster.name)
    plan = on_pods(cluster, lambda task: f"{name}-{task.job}-{task.index}")
    specs: dict[str, Manifest] = {}
    for job, tasks in grouped((task.id.job, task) for task in plan.tasks).items():
        if job not in _ROLES:
            raise PreflightError(
                f"a TFJob has no role for the job {job}", hint="dtctl export jobset    takes jobs of any name"
            )
        template = template_of(tasks, without=("TF_CONFIG",))
        if template is None:
            raise _differ(job, tasks, "a TFJob", ("TF_CONFIG",))
        policy = "OnFailure" if tasks[-1].scope == "task" and cluster.recovery.max_restarts else "Never"
        specs[_ROLES[job]] = _replicas(cluster, tasks, template, image, name, policy)
    run: Manifest = {"cleanPodPolicy": "Running", "backoffLimit": cluster.recovery.max_restarts}
    if cluster.ttl_s is not None:
        run["ttlSecondsAfterFinished"] = round(cluster.ttl_s)
    if cluster.active_deadline_s is not None:
        run["activeDeadlineSeconds"] = round(cluster.active_deadline_s)
    success = "AllWorkers" if plan.success == "all-workers" else ""
    spec = {"runPolicy": run, "successPolicy": success, "tfReplicaSpecs": specs}
    found = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}
    return Exported((found,), plan, tuple(_of_tfjob(cluster)))


def _replicas(
    cluster: Cluster, tasks: list[TaskPlan], template: Template, image: str, name: str, policy: str
) -> Manifest:
    env = variables(template, cluster.trainer.secrets, f"{name}-secrets", REPLICA_INDEX)
    spec = pod(cluster, container("tensorflow", image, template, env), name, None)
    return {"replicas": len(tasks), "restartPolicy": policy, "template": {"spec": spec}}


def _of_tfjob(cluster: Cluster) -> list[str]:
    said: Mapping[str, bool] = {
        "tf_config: the operator writes TF_CONFIG itself": cluster.tf_config != type(cluster.tf_config)(),
        "recovery.permanent: exit codes are not told apart": True,
        "recovery.max_restarts: counted for all tasks together": True,
    }
    return [text for text, applies in said.items() if applies]
