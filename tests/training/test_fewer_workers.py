"""TensorFlow's MultiWorkerMirroredStrategy trains with fewer while a host is cut off, and with it when it is back."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from dtctl.rooms.init.operation import write_helper
from tests.desk import desk
from tests.hosts.fleet import Fleet, module_fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]

TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "multi-worker-mirrored"
LONG_S = 300.0
"""Three imports of TensorFlow at once on two cores, after what the hosts wait for."""

KEYS = {
    "jobs": {"worker": {"hosts": "gpu-[1-3]", "port": 2222}},
    "trainer": {
        "command": ["python", "train.py"],
        "python": sys.executable,
        "dialect": "tf_config",
        "args": {"output_dir": "{output_dir}", "train_steps": 1000000, "save_steps": 50, "log_steps": 10},
        "env": {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"},
    },
    "dirs": {"output": "output"},
    "grace": "5s",
    "recovery": {"backoff": "1s..2s", "host_timeout": "50s", "min_workers": 2},
}

fleet = module_fleet(3)


def test_a_cut_off_worker_is_left_out_and_trains_again_later(fleet: Fleet, tmp_path: Path) -> None:
    with desk(tmp_path / "home", name="mirrored") as user:
        shutil.copytree(TEMPLATE, user.project, dirs_exist_ok=True)
        write_helper(user.project)
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in KEYS.items())
        (user.project / "cluster.yaml").write_text(f"name: mirrored\n{fleet.cluster_yaml(user.client)}{text}")

        def attempts(file: str) -> list[str]:
            """Of the lead, in their order."""
            found = fleet["gpu-1"].home.glob(f".dtctl/runs/*/*/tasks/worker-0/attempt-*/{file}")
            return [path.read_text() for path in sorted(found, key=lambda path: int(path.parent.name[8:]))]

        def trains_on(attempt: int) -> bool:
            task = user.task("worker:0")
            return bool(task["attempt"] == attempt and task["state"] == "running" and task["step"])

        def workers() -> int:
            """That was reported to the lead."""
            pid = json.loads(attempts("start.json")[-1])["pid"]
            environ = fleet["gpu-1"].exec("cat", f"/proc/{pid}/environ", root=True)
            [config] = re.findall(r"TF_CONFIG=([^\0]*)", environ)
            return len(json.loads(config)["cluster"]["worker"])

        user.dtctl("up")
        eventually(lambda: trains_on(1), LONG_S, "training with three")
        fleet.cut(fleet["gpu-3"])
        eventually(lambda: user.task("worker:0")["attempt"] > 1, LONG_S, "a restart")
        few = user.task("worker:0")["attempt"]
        eventually(lambda: trains_on(few), LONG_S, "training with two")
        assert workers() == 2
        assert "worker:2 left out: gpu-3 has been unreachable for 50 s; 2 of 3 workers train" in user.dtctl("status")
        fleet.heal(fleet["gpu-3"])
        eventually(lambda: user.task("worker:0")["attempt"] > few, LONG_S, "a restart with all")
        eventually(lambda: trains_on(user.task("worker:0")["attempt"]), LONG_S, "training with three again")
        assert workers() == 3
        assert user.task("worker:2")["state"] == "running"
        begun = [int(step) for log in attempts("log") for step in re.findall(r"worker 0 starts at step (\d+)", log)]
        assert begun == sorted(begun), begun
        assert begun[-1] > begun[-2] > 0, "each continues from a checkpoint"
        user.dtctl("stop")
