"""Two clusters on the same hosts over SSH, whose files say nothing of each other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text
from tests.hosts.fleet import Fleet, missing
from tests.hosts.gpus import Gpus, gpu
from tests.hosts.sandbox import make_directory

pytestmark = [pytest.mark.fleet, pytest.mark.nightly]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """Two hosts with two GPUs each, as the driver says there."""
    if reason := missing():
        pytest.skip(f"no fleet: {reason}")
    directory = make_directory("gpus")
    directory.chmod(0o755)
    driver = Gpus(directory, gpu(used=0), gpu(used=0)).env
    Path(driver["LD_LIBRARY_PATH"]).chmod(0o755)
    try:
        with Fleet(2, options={"SetEnv": " ".join(f"{name}={value}" for name, value in driver.items())}) as made:
            yield made
    finally:
        shutil.rmtree(directory)


def project(user: Desk, name: str, gpus: int) -> Path:
    place = user.home / name
    shutil.copytree(user.project, place)
    hosts = f"hosts:\n  gpu-[1-2]: {{gpus: {gpus}}}\n" if gpus else "hosts:\n  gpu-[1-2]:\n"
    text = cluster_text(jobs='{ps: {hosts: gpu-1}, worker: {hosts: "gpu-[1-2]"}}')
    (place / "cluster.yaml").write_text(text.format(name=name, hosts=hosts, args="{}"))
    return place


def test_the_second_gets_ports_and_no_gpu_of_the_first(user: Desk, fleet: Fleet) -> None:
    first, second, third = project(user, "first", 2), project(user, "second", 0), project(user, "third", 2)
    user.dtctl("up", "-q", cwd=first)
    moved = user.run("up", "-q", cwd=second)
    assert moved.returncode == 0, moved.stderr
    assert re.search(r"ports .*2222.* are in use on gpu-\[1-2\]; the hosts choose other ports", moved.stderr)
    assert f"of the run {json.loads(user.dtctl('status', '-o', 'json', cwd=first))['run']} " in moved.stderr
    assert "which worker:0 of your run first-" in moved.stderr, "the file of the second declares no GPUs"
    status = [json.loads(user.dtctl("status", "-o", "json", cwd=place)) for place in (first, second)]
    ports = [{int(task["address"].rpartition(":")[2]) for task in one["tasks"]} for one in status]
    assert not ports[0] & ports[1]
    assert {task["state"] for one in status for task in one["tasks"]} == {"running"}
    refused = user.run("up", "-q", cwd=third)
    run = status[0]["run"]
    assert refused.returncode == 5
    assert f"GPU 0-1 of gpu-1 is taken: worker:0 of your run {run} may use it" in refused.stderr
    assert "dtctl stop --cluster first" in refused.stderr
    user.dtctl("stop", cwd=first)
    user.dtctl("up", "-q", cwd=third)
    every = json.loads(user.dtctl("runs", "--all", "-o", "json", cwd=first))["runs"]
    assert [(one["cluster"], one["live"]) for one in every] == [("third", True), ("second", True), ("first", False)]
    for place in (first, second, third):
        user.dtctl("down", "--yes", "--grace", "1s", cwd=place)
