"""Programs of JAX as its own examples write them, unmodified; what Orbax saves is read without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.desk import desk
from tests.environments import environment

pytestmark = [pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(600)]

TRAINER = """\
import sys

import jax

jax.distributed.initialize()

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

numbers = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1]))
with ocp.CheckpointManager(sys.argv[1]) as manager:
    for step in (100, 200):
        manager.save(step, args=ocp.args.StandardSave({"w": np.arange(1000.0)}))
    manager.wait_until_finished()
print(f"step 200  processes {jax.process_count()}  sum {int(numbers.sum())}", flush=True)
"""

CLUSTER = """\
name: jax
hosts: {{node-1: , node-2: }}
jobs: {{worker: {{hosts: [node-1, node-2]}}}}
trainer:
  command: [python, train.py, "{{output_dir}}"]
  python: {python}
  dialect: jax
dirs: {{output: {output}}}
"""


def test_two_processes_initialize_without_arguments_and_save_by_orbax(tmp_path: Path) -> None:
    python = environment("jax")
    with desk(tmp_path / "home", name="jax") as user:
        (user.project / "train.py").write_text(TRAINER)
        (user.project / "cluster.yaml").write_text(CLUSTER.format(python=python, output=tmp_path / "output"))
        done = user.run("up", "--local", "-f", timeout_s=300)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("processes 2  sum 3") == 2
        reported = json.loads(user.dtctl("checkpoints", "-o", "json"))
        found = [one for each in reported["checkpoints"] for one in each["all"]]
        assert [(one["step"], one["kind"], one["complete"]) for one in found] == [
            (200, "orbax", True),
            (100, "orbax", True),
        ]
