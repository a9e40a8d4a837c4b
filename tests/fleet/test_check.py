"""`dtctl check` on separate hosts, each with another fault that would cost a run an hour."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.desk import Desk, cluster_text
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

HOSTS = "hosts:\n  gpu-[1-5]:\nssh: {connect_timeout: 5s}\n"
CLUSTER = cluster_text(
    jobs="{ps: {hosts: [gpu-2, gpu-3]}, worker: {hosts: [gpu-1, gpu-4, gpu-5]}}",
    trainer="command: [python, train.py], venv: ~/venv",
    dirs="{output: ~/saved}",
)
TRAIN = """\
import tensorflow.compat.v1 as tf

with tf.train.MonitoredTrainingSession(checkpoint_dir="saved"):
    pass
"""
VERSIONS = {"gpu-1": "2.21.0", "gpu-2": "2.21.0", "gpu-3": "2.21.0", "gpu-4": "", "gpu-5": "2.19.0"}


@pytest.fixture
def broken(user: Desk, fleet: Fleet) -> Iterator[Desk]:
    """TensorFlow is missing on gpu-4 and older on gpu-5, whose clock is wrong; the disk of gpu-3 is full."""
    user.write_cluster(CLUSTER, hosts=HOSTS)
    (user.project / "train.py").write_text(TRAIN)
    for host, version in VERSIONS.items():
        make_environment(fleet[host], version)
    with contextlib.ExitStack() as wrong:
        clock = wrong.enter_context(faults.clock_of_its_own(fleet["gpu-5"]))
        clock.write_text("300")
        wrong.enter_context(faults.small_disk(fleet["gpu-3"], "saved", 4))
        wrong.enter_context(faults.full_disk(fleet["gpu-3"], "saved"))
        yield user


def make_environment(host: FleetHost, version: str) -> None:
    """Makes a virtual environment with an apparent TensorFlow, which is enough for code that does not import it."""
    reported = host.exec(
        "python3", "-c", "import os, sys; print(os.path.realpath(sys.executable), *sys.version_info[:2])"
    )
    python, *number = reported.split()
    packages = f"venv/lib/python{'.'.join(number)}/site-packages"
    host.exec("mkdir", "-p", "venv/bin", packages)
    host.exec("ln", "-s", python, "venv/bin/python")
    (host.home / "venv" / "pyvenv.cfg").write_text(f"home = {python.rpartition('/')[0]}\n")
    if version:
        info = f"{packages}/tensorflow-{version}.dist-info"
        host.exec("mkdir", "-p", f"{packages}/tensorflow", info)
        (host.home / packages / "tensorflow" / "__init__.py").write_text("raise SystemExit('it was imported')\n")
        (host.home / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n")


def test_a_check_finds_what_is_wrong_with_each_host_and_leaves_nothing_behind(broken: Desk, fleet: Fleet) -> None:
    began = time.monotonic()
    reported = json.loads(broken.dtctl("check", "-o", "json", code=5))
    took = time.monotonic() - began
    found: dict[str, dict[str, Any]] = {one["signature"]: one for one in [*reported["problems"], *reported["warnings"]]}

    assert found["modules_missing"]["hosts"] == ["gpu-4"]
    assert found["modules_missing"]["remedies"][1] == (
        "dtctl exec @gpu-4 -- /home/train/venv/bin/python -m pip install tensorflow==2.21.0"
    )
    assert found["framework_differs"]["hosts"] == ["gpu-5"]
    assert "2.19.0 on gpu-5, 2.21.0 on gpu-[1-3]" in found["framework_differs"]["means"]
    assert found["clock_wrong"]["hosts"] == ["gpu-5"]
    assert 290 <= found["clock_wrong"]["fields"]["off_s"] <= 301
    assert found["checkpoints_not_shared"]["hosts"] == ["gpu-2", "gpu-3"]
    assert "what gpu-1 writes there is not seen on gpu-[2-3]" in found["checkpoints_not_shared"]["means"]
    assert found["disk_full_before"]["hosts"] == ["gpu-3"]
    assert "/home/train/saved" in found["disk_full_before"]["means"]
    assert not reported["errors"]

    assert reported["seconds"] <= took
    eventually(lambda: not fleet.busy())
    for host in fleet.hosts:
        assert not [path.name for path in host.home.rglob(".dtctl-check-*")]


SAVES_ITS_PARTS = """\
import sys
import time


def train(tf):
    with tf.train.MonitoredTrainingSession(checkpoint_dir="output"):  # each ps saves its own part
        pass


time.sleep(600 if "--job_name=ps" in sys.argv else 3)
"""


def test_a_start_that_no_host_could_restore_is_refused_unless_it_may_start_over(user: Desk, fleet: Fleet) -> None:
    keys = {
        "jobs": "{ps: {hosts: [gpu-2]}, worker: {hosts: [gpu-1]}}",
        "trainer": "command: [python, train.py]",
        "dirs": "{output: output}",
    }
    user.write_cluster(cluster_text(**keys), hosts=HOSTS)
    (user.project / "train.py").write_text(SAVES_ITS_PARTS)
    done = user.run("up")
    refused = " ".join(done.stderr.split())
    assert done.returncode == 5, done.stderr
    assert "no host would have a whole checkpoint" in refused
    for way in ("dirs.output in cluster.yaml: a directory", "gs://BUCKET/PATH", "jobs.ps.hosts: gpu-1", "up --force"):
        assert way in refused
    assert not fleet.busy()
    user.write_cluster(cluster_text(**keys, recovery="{allow_scratch: true}"), hosts=HOSTS)
    user.dtctl("up")
    user.dtctl("down", "--yes")
