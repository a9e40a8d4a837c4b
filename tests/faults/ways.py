"""The ways of training that faults are tried on: who runs where on five hosts, and what the stand-in is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.desk import Desk
from tests.faults.scene import Scene
from tests.hosts.fleet import Fleet

TRAINER = Path(__file__).with_name("trainer")

TARGET = 200
"""Where training may end; it goes on until it is told that it is enough."""

SPEED = {"train_steps": TARGET, "steps_per_s": 60, "save_s": 0.5, "poll_s": 0.2}

RECOVERY = {"max_restarts": 3, "backoff": "100ms..200ms"}


@dataclass(frozen=True)
class Way:
    """The lead is on gpu-3 in all of them."""

    strategy: str
    jobs: Mapping[str, str]
    flags: Mapping[str, object]

    def cluster_yaml(self, name: str, hosts: str, more: Mapping[str, object]) -> str:
        """`more`: further keys of the file. Its `args`, `recovery` and `trainer` add to what stands there anyway."""
        args = {**SPEED, **self.flags, "output_dir": "{output_dir}", "until_file": "{output_dir}/enough"}
        keys = {
            "jobs": {job: {"hosts": where} for job, where in self.jobs.items()},
            "strategy": self.strategy,
            "trainer": {
                "command": ["python", "-m", "trainer"],
                "dialect": "tensorflow",
                "args": {**args, **_mapping(more.get("args"))},
                **_mapping(more.get("trainer")),
            },
            "dirs": {"output": "output"},
            "recovery": {**RECOVERY, **_mapping(more.get("recovery"))},
            "grace": "2s",
            "settle": "5s",
            **{key: value for key, value in more.items() if key not in ("args", "recovery", "trainer")},
        }
        return f"name: {name}\n{hosts}" + "".join(f"{key}: {json.dumps(value)}\n" for key, value in keys.items())


def stand_in(fleet: Fleet, user: Desk, way: Way, **more: object) -> Scene:
    """A project on the desk whose trainer is the stand-in; `more` as for Way.cluster_yaml."""
    shutil.copytree(TRAINER, user.project / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    (user.project / "cluster.yaml").write_text(way.cluster_yaml(user.name, fleet.cluster_yaml(), more))
    return Scene(fleet, user)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


ASYNC = Way("async-ps", {"ps": "gpu-[1-2]", "worker": "gpu-[3-5]"}, {"way": "async"})
SYNC = Way("sync-ps", {"ps": "gpu-[1-2]", "worker": "gpu-[3-5]"}, {"way": "sync"})
STRATEGY = Way("ps-strategy", {"ps": "gpu-[1-2]", "chief": "gpu-3", "worker": "gpu-[4-5]"}, {"way": "ps-strategy"})
COLLECTIVE = Way("mirrored", {"worker": "gpu-[3-5]"}, {"way": "collective", "heartbeat_s": 3})
