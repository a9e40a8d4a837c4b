"""A checkpoint of this machine is what the next run begins with: with real TensorFlow, on hosts that share no disk."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.hosts.fleet import Fleet, module_fleet

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]

PATIENCE_S = 300.0

TRAINER = """\
import argparse
import os
import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
parser = argparse.ArgumentParser()
for name in ("--ps_hosts", "--worker_hosts", "--job_name", "--output_dir"):
    parser.add_argument(name)
parser.add_argument("--task_index", type=int)
given = parser.parse_args()
cluster = {"ps": given.ps_hosts.split(","), "worker": given.worker_hosts.split(",")}
server = tf.train.Server(cluster, job_name=given.job_name, task_index=given.task_index)
if given.job_name == "ps":
    server.join()

with tf.device("/job:ps/task:0"):
    step = tf.Variable(0, name="global_step", dtype=tf.int64)
    first = tf.Variable(tf.zeros([1000]), name="first")
with tf.device("/job:ps/task:1"):
    second = tf.Variable(tf.zeros([1000]), name="second")
saver = tf.train.Saver(sharded=True, save_relative_paths=True)
with tf.Session(server.target) as session:
    newest = tf.train.latest_checkpoint(given.output_dir)
    if newest is None:
        session.run(tf.global_variables_initializer())
        values = {step: 500, first: [2.0] * 1000, second: [3.0] * 1000}
        session.run([tf.assign(variable, value) for variable, value in values.items()])
        saver.save(session, os.path.join(given.output_dir, "model.ckpt"), global_step=step)
        print("saved step 500", flush=True)
    else:
        saver.restore(session, newest)
        values = session.run([step, tf.reduce_sum(first), tf.reduce_sum(second)])
        print("begins with", *values, flush=True)
"""

CLUSTER = """\
name: demo
hosts:
{hosts}
jobs:
  ps: {{hosts: [gpu-1, gpu-2]}}
  worker: {{hosts: gpu-3}}
trainer:
  command: [python, train.py]
  python: {python}
  args: {{output_dir: "{{output_dir}}"}}
  env: {{TF_CPP_MIN_LOG_LEVEL: 2}}
dirs: {{output: output}}
grace: 2s
"""


fleet = module_fleet(3)


@pytest.fixture
def user(tmp_path: Path, fleet: Fleet) -> Iterator[Desk]:
    with desk(tmp_path / "home") as made:
        made.write_ssh_config(fleet.ssh_config.read_text())
        (made.project / "train.py").write_text(TRAINER)
        hosts = "".join(f"  {host.name}: {host.address}\n" for host in fleet.hosts)
        (made.project / "cluster.yaml").write_text(CLUSTER.format(hosts=hosts, python=sys.executable))
        yield made


def trained(user: Desk, *words: str) -> str:
    """What the worker has printed."""
    user.dtctl("up", "-q", *words, timeout_s=PATIENCE_S)
    done = user.run("wait", timeout_s=PATIENCE_S)
    log = user.dtctl("logs", "worker:0", "-n", "all")
    assert done.returncode == 0, f"{done.stderr}\n{log}"
    return log


def test_every_ps_restores_its_part_on_its_own_disk(user: Desk, fleet: Fleet) -> None:
    assert "saved step 500" in trained(user, "--local")
    kept = user.project.parent / "kept"
    user.dtctl("checkpoints", "pull", str(kept))
    assert len(list(kept.glob("model.ckpt-500.data-*-of-00002"))) == 2

    reported = json.loads(user.dtctl("checkpoints", "push", str(kept), "-o", "json"))
    assert reported["step"] == 500
    assert {(one["host"], one["sentBytes"]) for one in reported["placed"]} == {
        (host.name, reported["sizeBytes"]) for host in fleet.hosts
    }
    assert "begins with 500 2000.0 3000.0" in trained(user)

    shared = ("--into", str(fleet.shared))
    [once] = json.loads(user.dtctl("checkpoints", "push", str(kept), *shared, "-o", "json"))["placed"]
    assert (once["host"], set(once["others"])) == ("gpu-3", {"gpu-1", "gpu-2"})
    begun = trained(user, "--set", f"dirs.output={fleet.shared}")
    assert "begins with 500 2000.0 3000.0" in begun
    for host in fleet.hosts:
        assert not list(host.home.rglob(".*.part"))
