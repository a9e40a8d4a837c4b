"""Whether exported manifests are what their operators know: `python schemas.py FILE...`.

It runs in the environment `kubeflow` (tests/environments.py), and imports nothing of dtctl. A field that a model does
not keep is unknown to the operator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes.client.models
import kubernetes_validate
import yaml
from kubeflow.training import models as training
from kubeflow_trainer_api import models as trainer
from kubernetes.client import ApiClient

KINDS = {
    "JobSet": "JobsetV1alpha2JobSet",
    "TrainJob": "TrainerV1alpha1TrainJob",
    "TrainingRuntime": "TrainerV1alpha1TrainingRuntime",
}


def unknown(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Fields that a model has dropped."""
    if isinstance(given, dict):
        for key, value in given.items():
            if isinstance(kept, dict) and key in kept:
                yield from unknown(value, kept[key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(given, list):
        for index, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from unknown(one, other, f"{path}[{index}]")


def core(kind: str, version: str, spec: Any) -> None:
    """Raises ValidationError for what is no object of Kubernetes itself."""
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def problems(document: Any) -> list[str]:
    kind, spec = document["kind"], document["spec"]
    if kind == "TFJob":
        for role in spec["tfReplicaSpecs"].values():
            core("Pod", "v1", role["template"]["spec"])
        for name in dir(training):
            if name.startswith("KubeflowOrg"):
                setattr(kubernetes.client.models, name, getattr(training, name))
        client = ApiClient()
        made = client.deserialize(SimpleNamespace(data=json.dumps(document)), "KubeflowOrgV1TFJob")
        return list(unknown(document, client.sanitize_for_serialization(made)))
    jobs = spec if kind == "JobSet" else spec.get("template", {}).get("spec", {})
    for job in jobs.get("replicatedJobs", ()):
        core("Job", "batch/v1", job["template"]["spec"])
    return list(unknown(document, getattr(trainer, KINDS[kind]).from_dict(document).to_dict()))


if __name__ == "__main__":
    found = {
        f"{name} {document['kind']}": problems(document)
        for name in sys.argv[1:]
        for document in yaml.safe_load_all(Path(name).read_text())
    }
    print(json.dumps(found))
