"""`export` writes a cluster for other engines: the same words, nothing dropped silently, no secret's value."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtctl.config.cluster import Cluster
from dtctl.config.load import load_cluster
from dtctl.errors import PreflightError
from dtctl.rooms.export.operation import TARGETS, export
from dtctl.rooms.init.operation import template_names, templates_directory

CODE = "c0de" * 16
GOLDEN = Path(__file__).parent / "exported"
DIGITS = """\
name: digits
hosts: {"gpu-[1-2]": {gpus: 1}, store: }
jobs:
  ps: {hosts: [store, store]}
  worker: {hosts: "gpu-[1-2]"}
trainer:
  command: [python, train.py]
  args: {steps: 100, dir: "{output_dir}"}
  env: {MODE: fast, SHELL_TEXT: "$(date) `id` \\"x\\""}
  secrets: [WANDB_API_KEY]
  environment: {requirements: requirements.txt}
dirs: {output: out, data: /data/digits}
active_deadline: 2h
ttl: 1d
"""
GANG = """\
name: ring
hosts: {"gpu-[1-3]": {gpus: 2}}
jobs: {worker: {hosts: "gpu-[1-3]"}}
trainer: {command: [python, train.py], dialect: tf_config, environment: {container: "docker.io/x/y:1"}}
dirs: {output: "gs://bucket/ring"}
recovery: {stall: 10m, max_restarts: 3}
"""
CLUSTERS = {"digits": DIGITS, "ring": GANG}


def cluster_of(text: str, place: Path) -> Cluster:
    (place / "train.py").touch()
    file = place / "cluster.yaml"
    file.write_text(text)
    return load_cluster(file)


def manifest(text: str, target: str, place: Path) -> dict[str, Any]:
    (*_, found) = yaml.safe_load_all(export(cluster_of(text, place), target, CODE, "x/y:1").text)
    return dict(found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_the_exported_text_is_the_golden_one(name: str, target: str, tmp_path: Path) -> None:
    made = export(cluster_of(CLUSTERS[name], tmp_path), target, CODE, None)
    golden = GOLDEN / f"{name}.{target}"
    assert made.text == golden.read_text(), f"if this is meant: write it to {golden}"
    assert made == export(cluster_of(CLUSTERS[name], tmp_path), target, CODE, None)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("template", template_names())
def test_every_template_is_exported_or_refused_with_a_remedy(template: str, target: str, tmp_path: Path) -> None:
    shutil.copytree(templates_directory() / template, tmp_path / "x")
    try:
        made = export(load_cluster(tmp_path / "x/cluster.yaml"), target, CODE, None)
    except PreflightError as error:
        if not error.hint:
            raise
        return
    assert "\0" not in made.text
    assert all(text in made.text for text in made.warnings)


def test_pods_learn_their_index_from_kubernetes(tmp_path: Path) -> None:
    made = manifest(DIGITS, "jobset", tmp_path)
    ps, worker = made["spec"]["replicatedJobs"]
    pod = worker["template"]["spec"]["template"]["spec"]["containers"][0]
    assert pod["command"][-1] == "--task_index=$(TASK_INDEX)"
    env = {one["name"]: one.get("value") for one in pod["env"]}
    filled = json.loads(env["TF_CONFIG"].replace("$(TASK_INDEX)", "1"))
    assert filled["task"] == {"type": "worker", "index": 1}
    assert filled["cluster"]["worker"] == ["digits-worker-0-0.digits:2222", "digits-worker-0-1.digits:2222"]
    assert env["SHELL_TEXT"] == '$$(date) `id` "x"'
    assert worker["template"]["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert pod["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert "resources" not in ps["template"]["spec"]["template"]["spec"]["containers"][0]


def test_what_restarts_together_restarts_with_the_jobset(tmp_path: Path) -> None:
    spec = manifest(GANG, "jobset", tmp_path)["spec"]
    (worker,) = spec["replicatedJobs"]
    assert worker["template"]["spec"]["backoffLimit"] == 0
    assert spec["failurePolicy"]["maxRestarts"] == 3
    assert [rule["name"] for rule in spec["failurePolicy"]["rules"]] == ["permanent"]
    assert "recovery.stall" in export(cluster_of(GANG, tmp_path), "jobset", CODE, None).text


@pytest.mark.parametrize("target", ["jobset", "tfjob", "trainjob", "slurm"])
def test_values_of_secrets_are_never_written(target: str, tmp_path: Path) -> None:
    text = DIGITS.replace("MODE: fast", "DB_PASSWORD: hunter22")
    made = export(cluster_of(text, tmp_path), target, CODE, None)
    assert "hunter22" not in made.text
    assert "DB_PASSWORD" in made.text
    with pytest.raises(PreflightError, match="holds a secret"):
        export(cluster_of(DIGITS.replace("steps: 100", "api_key: hunter22hunter22"), tmp_path), target, CODE, None)


def test_tasks_that_differ_in_more_than_their_index_are_refused(tmp_path: Path) -> None:
    text = DIGITS.replace("command: [python, train.py]", "command: [python, train.py]\n  dialect: pytorch")
    text = text.replace("jobs:\n", "jobs:\n  chief: {hosts: store}\n")
    with pytest.raises(PreflightError, match="differ in more than their index"):
        export(cluster_of(text, tmp_path), "jobset", CODE, None)


def test_a_tfjob_has_roles_alone(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no role"):
        export(cluster_of(DIGITS.replace("  ps:", "  store:"), tmp_path), "tfjob", CODE, None)
    spec = manifest(DIGITS, "tfjob", tmp_path)["spec"]
    assert list(spec["tfReplicaSpecs"]) == ["PS", "Worker"]
    assert "TF_CONFIG" not in json.dumps(spec)
