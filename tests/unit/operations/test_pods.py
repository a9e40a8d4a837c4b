"""The files of `export jobset --with-agent`, and how `kubectl` is called for a host in a pod."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtctl.config.cluster import Cluster
from dtctl.config.load import load_cluster
from dtctl.errors import PreflightError, TransportError
from dtctl.model import Host, OtherTransport
from dtctl.operations.run_record import RunRecord
from dtctl.operations.sending import scan_code
from dtctl.rooms.export.operation import export_with_agent
from dtctl.rooms.kubectl.transport import KubectlTransport, command
from dtctl.transport.payload import LOADER
from dtctl.transport.seam import TransportOptions
from tests.unit.operations.test_export import DIGITS


def cluster_of(text: str, place: Path) -> Cluster:
    (place / "train.py").write_text("print(1)\n")
    (place / "requirements.txt").touch()
    (place / "cluster.yaml").write_text(text)
    return load_cluster(place / "cluster.yaml")


def exported(text: str, place: Path, namespace: str | None = None) -> tuple[list[dict[str, Any]], RunRecord, str]:
    cluster = cluster_of(text, place)
    made, record = export_with_agent(cluster, scan_code(cluster), "x/y:1", {}, namespace)
    return list(yaml.safe_load_all(made.text)), record, made.text


def test_each_task_has_a_pod_that_reads_the_plan(tmp_path: Path) -> None:
    (config, keys, jobset), record, _ = exported(DIGITS, tmp_path, "team")
    plan = json.loads(config["data"]["plan.json"])
    assert list(plan["hosts"]) == ["ps-0", "ps-1", "worker-0", "worker-1"]
    assert plan["secrets"] == ["WANDB_API_KEY"]
    assert set(keys["data"]) == {f"{host}.json" for host in plan["hosts"]}
    ps, worker = jobset["spec"]["replicatedJobs"]
    assert (ps["replicas"], worker["replicas"], worker["template"]["spec"]["completions"]) == (2, 2, 1)
    (container,) = worker["template"]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-1] == "worker-$(TASK_INDEX)"
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 1}}
    assert {one["name"]: one.get("subPathExpr") for one in container["volumeMounts"]}[
        "keys"
    ] == "worker-$(TASK_INDEX).json"
    assert plan["shared"]["spec"]["coordinator"]["address"].startswith("digits-worker-0-0.digits")
    reach = {name: host.reach for name, host in record.hosts.items()}
    assert reach["worker-1"] == OtherTransport("kubectl", "team/digits-worker-1")


def test_keys_are_in_the_secret_alone_and_values_of_secrets_nowhere(tmp_path: Path) -> None:
    (config, keys, jobset), _, text = exported(DIGITS, tmp_path)
    assert "PRIVATE KEY" not in json.dumps([config, jobset])
    assert "PRIVATE KEY" in base64.b64decode(keys["data"]["ps-0.json"]).decode()
    assert "the value is in the Secret" not in text
    with pytest.raises(PreflightError, match="holds a secret"):
        exported(DIGITS.replace("MODE: fast", "DB_PASSWORD: hunter22"), tmp_path)


def test_a_plan_that_no_config_map_takes_is_refused(tmp_path: Path) -> None:
    text = DIGITS.replace("MODE: fast", "MODE: " + "x" * 700_000)
    with pytest.raises(PreflightError, match="a ConfigMap takes"):
        exported(text, tmp_path)


def test_kubectl_is_given_the_job_of_the_pod_and_the_constant_command() -> None:
    host = Host("worker-1", OtherTransport("kubectl", "team/digits-worker-1"))
    words = command(host)
    assert words[:6] == ["kubectl", "exec", "--namespace=team", "--stdin", "--container=trainer", "job/digits-worker-1"]
    assert " ".join(words[7:]).split() == LOADER.replace("'", "").split()


def test_without_kubectl_the_remedy_is_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    host = Host("worker-1", OtherTransport("kubectl", "digits-worker-1"))
    with pytest.raises(TransportError, match="kubectl: No such file") as caught:
        KubectlTransport(TransportOptions()).open(host)
    assert "install kubectl" in str(caught.value.hint)
