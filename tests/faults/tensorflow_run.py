"""The first trainer of the templates on the fleet, with real TensorFlow, slow enough for something to happen."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from dtctl.operations.init import write_helper
from tests.desk import Desk
from tests.faults.scene import Scene, mapping
from tests.hosts.fleet import Fleet

TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "ps-async" / "train.py"
PACED = Path(__file__).with_name("paced_train.py")
TRAINERS = ("gpu-3", "gpu-4")
RECOVERY_S = 240.0
"""Four imports of TensorFlow at once on two busy cores take a minute."""


def tensorflow(fleet: Fleet, user: Desk, steps: int, **more: object) -> Scene:
    """A project on the desk: two ps, two workers, at most 20 steps a second until it is told that it is enough.

    `more`: further keys of the file, or others in place of those here; `recovery` adds to what stands there.
    """
    for file in (TEMPLATE, PACED):
        shutil.copy(file, user.project / file.name)
    if not (user.project / "graceful.py").exists():
        write_helper(user.project)
    keys = {
        "jobs": {"ps": {"hosts": "gpu-[1-2]"}, "worker": {"hosts": "gpu-[3-4]"}},
        "trainer": {
            "command": ["python", PACED.name],
            "python": sys.executable,
            "args": {"output_dir": "{output_dir}", "train_steps": steps, "save_secs": 5, "log_steps": 10},
            "env": {"ENOUGH": "{output_dir}/enough", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"},
        },
        "dirs": {"output": "output"},
        "grace": "20s",
        **more,
        "recovery": {"backoff": "1s..2s", "stall": "120s", **mapping(more.get("recovery"))},
    }
    text = f"name: {user.name}\n{fleet.cluster_yaml(user.client)}"
    (user.project / "cluster.yaml").write_text(text + "".join(f"{key}: {json.dumps(keys[key])}\n" for key in keys))
    return Scene(fleet, user, RECOVERY_S)
