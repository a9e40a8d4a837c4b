"""Trainers of the templates on the fleet, with real TensorFlow, slow enough for faults during training."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dtctl.rooms.init.operation import write_helper
from tests.desk import Desk
from tests.faults.scene import Scene, mapping
from tests.hosts.fleet import Fleet

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
PACED = Path(__file__).with_name("paced_train.py")
TRAINERS = ("gpu-3", "gpu-4")
RECOVERY_S = 240.0
"""Four imports of TensorFlow at once on two busy cores take a minute."""


@dataclass(frozen=True)
class Program:
    """A template, whose lead is on gpu-3."""

    template: str
    strategy: str
    args: Mapping[str, object]
    jobs: Mapping[str, str]
    trainer: Mapping[str, object] = field(default_factory=dict)


PS_JOBS = {"ps": "gpu-[1-2]", "worker": "gpu-[3-4]"}
PS_ASYNC = Program("ps-async", "async-ps", {"save_secs": 5, "log_steps": 10}, PS_JOBS)
PS_SYNC = Program("ps-sync", "sync-ps", {"save_secs": 5, "log_steps": 10}, PS_JOBS)
MIRRORED = Program(
    "multi-worker-mirrored",
    "mirrored",
    {"save_steps": 50, "log_steps": 10},
    {"worker": "gpu-[3-4]"},
    {"dialect": "tf_config"},
)


def tensorflow(fleet: Fleet, user: Desk, steps: int, program: Program = PS_ASYNC, **more: object) -> Scene:
    """A project on the desk, at most 10 steps per second of each worker until it is stopped.

    `more`: further keys of the file, or replacements of those here; `recovery` extends the existing ones.
    """
    for file in (*(TEMPLATES / program.template).glob("*.py"), PACED):
        shutil.copy(file, user.project / file.name)
    if not (user.project / "graceful.py").exists():
        write_helper(user.project)
    keys = {
        "jobs": {job: {"hosts": where} for job, where in program.jobs.items()},
        "strategy": program.strategy,
        "trainer": {
            "command": ["python", PACED.name],
            "python": sys.executable,
            "args": {"output_dir": "{output_dir}", "train_steps": steps, **program.args},
            "env": {"ENOUGH": "{output_dir}/enough", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"},
            **program.trainer,
        },
        "dirs": {"output": "output"},
        "grace": "20s",
        **more,
        "recovery": {"backoff": "1s..2s", "stall": "120s", **mapping(more.get("recovery"))},
    }
    text = f"name: {user.name}\n{fleet.cluster_yaml(user.client)}"
    (user.project / "cluster.yaml").write_text(text + "".join(f"{key}: {json.dumps(keys[key])}\n" for key in keys))
    return Scene(fleet, user, RECOVERY_S)
