"""Faults that new users meet, with real TensorFlow on separate hosts: `status`, or what it names, shows the remedy."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dtctl.rooms.init.operation import write_helper
from tests.desk import Desk
from tests.faults.tensorflow_run import PACED, PS_ASYNC, TEMPLATES
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(900)]

PORT = 2222
START_S = 400.0
"""Four imports of TensorFlow at once on two busy cores take a minute."""

OUTPUT = "dtctl/demo/output"
"""Below the home directory of each host."""


@dataclass(frozen=True)
class Fault:
    """`changes`: replacements in the trainer's text. `strikes`: whether a run that trains is hit."""

    name: str
    signature: str
    cause: str
    """A pattern of the expected output."""
    remedy: str
    args: tuple[tuple[str, object], ...] = ()
    changes: tuple[tuple[str, str], ...] = ()
    around: Callable[[Fleet], AbstractContextManager[object]] = lambda _: nullcontext()
    """Lasts from before `up`."""
    strikes: Callable[[Desk, Fleet], AbstractContextManager[object]] | None = None
    after_training: bool = False
    """The user has trained before, and changed the trainer since."""
    recovery: tuple[tuple[str, object], ...] = ()
    workers: int = 1
    """In addition to one ps; each task imports TensorFlow."""


@contextmanager
def too_much_memory(user: Desk, fleet: Fleet) -> Iterator[None]:
    faults.out_of_memory(*process(user, fleet, "worker:0"))
    yield


@contextmanager
def full_disk(user: Desk, fleet: Fleet) -> Iterator[None]:
    with faults.full_disk(fleet["gpu-2"], OUTPUT):
        yield


def process(user: Desk, fleet: Fleet, task: str) -> tuple[FleetHost, int]:
    found = user.task(task)
    return fleet[found["host"]], int(found["pid"])


HUGE = "0.0 * tf.reduce_sum(tf.random.uniform([1 << 15, 1 << 31]))"
OLD_VARIABLES = "tf.disable_eager_execution()\ntf.disable_resource_variables()\n"
"""Those of TensorFlow 2 accept any shape of a checkpoint."""
BEGINS = "def train(cluster):\n"

FAULTS = [
    Fault(
        "wrong flag",
        "flag_wrong",
        r"unrecognized arguments: --learning_rat=0\.1",
        r"correct trainer\.args .* in cluster\.yaml",
        args=(("learning_rat", 0.1),),
    ),
    Fault(
        "missing module",
        "module_missing",
        r"the Python of gpu-\S+ lacks the module lightgbm",
        r"dtctl exec @gpu-\S+ -- \S+/python -m pip install lightgbm",
        changes=(("import numpy as np", "import lightgbm\nimport numpy as np"),),
    ),
    Fault(
        "firewall that drops",
        "firewall",
        rf"ps:0 listens on \S+:{PORT}, but gpu-2 cannot connect to it",
        rf"open port {PORT} of gpu-1",
        around=lambda fleet: faults.closed_port(fleet["gpu-1"], PORT, "DROP"),
    ),
    Fault(
        "firewall that rejects",
        "refused",
        r"ps:0 listens on \S+, but it refuses gpu-2: a firewall rejects the connection\n",
        rf"open port {PORT} of gpu-1",
        around=lambda fleet: faults.closed_port(fleet["gpu-1"], PORT, "REJECT"),
    ),
    Fault(
        "full disk",
        "disk_full",
        r"a disk of gpu-2 is full",
        r"dtctl gc ",
        around=lambda fleet: faults.small_disk(fleet["gpu-2"], OUTPUT, 16),
        strikes=full_disk,
    ),
    Fault(
        "the kernel is out of memory",
        "killed_for_memory",
        r"worker:0 on gpu-2 was killed by SIGKILL[^\n]*\n.* gpu-2 ran out of memory",
        r"reduce the batch size in trainer\.args",
        strikes=too_much_memory,
    ),
    Fault(
        "an array that is too large",
        "host_memory",
        r"Unable to allocate \S+ TiB for an array[^\n]*\n.*gpu-\S+ has too little memory",
        r"reduce the batch size in trainer\.args",
        changes=((BEGINS, f"{BEGINS}    np.ones((1 << 46,))\n"),),
    ),
    Fault(
        "a tensor that is too large",
        "host_memory",
        r"OOM when allocating tensor with shape\[[^\n]*\n.*gpu-\S+ has too little memory",
        r"reduce the batch size in trainer\.args",
        changes=(("    scaffold = tf", f"    loss += {HUGE}\n    scaffold = tf"),),
    ),
    Fault(
        "slow host",
        "throttled",
        r"worker:2 on gpu-4 is limited to [\d.]+ processors by its control group",
        r"dtctl replace gpu-4",
        strikes=lambda user, fleet: faults.slowed(*process(user, fleet, "worker:2"), 0.02),
        workers=3,
    ),
    Fault(
        "frozen ps",
        "frozen",
        r"ps:0 on gpu-1 is frozen: a signal has stopped its process",
        r"dtctl exec @gpu-1 -- kill -CONT \d+",
        strikes=lambda user, fleet: faults.frozen(*process(user, fleet, "ps:0")),
        recovery=(("stall", "off"),),
    ),
    Fault(
        "NaN loss",
        "diverging",
        r"the loss of worker:\d is nan at step \d+: training has diverged",
        r"a smaller learning rate",
        args=(("learning_rate", 1e30),),
    ),
    Fault(
        "a checkpoint with other shapes",
        "checkpoint_of_another_model",
        r"the checkpoint \S+ belongs to another model: ",
        r"dtctl checkpoints ",
        changes=(("tf.disable_eager_execution()\n", OLD_VARIABLES), ("[64, 128]", "[64, 96]"), ("[128", "[96")),
        after_training=True,
    ),
    Fault(
        "a checkpoint with other names",
        "checkpoint_of_another_model",
        r"the checkpoint \S+ belongs to another model: Key \S+ not found in checkpoint",
        r"dtctl checkpoints ",
        changes=(("hidden/weights", "dense/weights"),),
        after_training=True,
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_cause_and_remedy_are_shown_to_a_new_user(user: Desk, fleet: Fleet, fault: Fault) -> None:
    with fault.around(fleet):
        write(user, fleet, fault)
        if fault.after_training:
            user.dtctl("up", timeout_s=120)
            eventually(lambda: saved(user), START_S, "a checkpoint")
            user.dtctl("stop", timeout_s=120)
        change(user.project / "train.py", fault.changes)
        user.dtctl("up", "--replace", code=None, timeout_s=120)
        with struck(user, fleet, fault):
            eventually(lambda: fault.signature in seen(user), START_S, fault.signature)
            screen = reported(user)
            assert re.search(fault.cause, screen), screen
            assert re.search(fault.remedy, screen), screen
    user.dtctl("down", "--yes", code=None, timeout_s=120)


@contextmanager
def struck(user: Desk, fleet: Fleet, fault: Fault) -> Iterator[None]:
    if fault.strikes is None:
        yield
        return
    workers = [f"worker:{index}" for index in range(fault.workers)]
    eventually(lambda: all(user.task(name)["step"] for name in workers) and saved(user), START_S, "training")
    with fault.strikes(user, fleet):
        yield


def seen(user: Desk) -> set[str]:
    """The first problem of `status`, or that of the command that it suggests."""
    return {problem["signature"] for command in commands(user) for problem in problems(user, command)[:1]}


def commands(user: Desk) -> list[str]:
    """`status`, and `diagnose` if `status` suggests it."""
    return ["status", *(["diagnose"] if "dtctl diagnose" in user.dtctl("status", code=None) else [])]


def problems(user: Desk, command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(user.dtctl(command, "-o", "json", code=None))["problems"]
    return found


def reported(user: Desk) -> str:
    return "\n".join(f"$ dtctl {command}\n{user.dtctl(command, code=None)}" for command in commands(user))


def saved(user: Desk) -> bool:
    return "checkpoint: step" in user.dtctl("status", code=None)


def change(file: Path, changes: tuple[tuple[str, str], ...]) -> None:
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def write(user: Desk, fleet: Fleet, fault: Fault) -> None:
    """A project on the desk: a ps and workers, each on a host of its own, at most ten steps per second each."""
    for file in (TEMPLATES / PS_ASYNC.template / "train.py", PACED):
        shutil.copy(file, user.project / file.name)
    write_helper(user.project)
    usual = {"output_dir": "{output_dir}", "train_steps": 1_000_000, "save_secs": 3, "log_steps": 10}
    keys = {
        "jobs": {
            "ps": {"hosts": "gpu-1", "port": PORT},
            "worker": {"hosts": [f"gpu-{index + 2}" for index in range(fault.workers)], "port": PORT},
        },
        "trainer": {
            "command": ["python", PACED.name],
            "python": sys.executable,
            "args": {**usual, **dict(fault.args)},
            "env": {"ENOUGH": "/nowhere", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_ENABLE_ONEDNN_OPTS": "0"},
        },
        "dirs": {"output": "output"},
        "recovery": {"backoff": "1s..2s", **dict(fault.recovery)},
        "grace": "5s",
    }
    text = f"name: {user.name}\n{fleet.cluster_yaml()}"
    (user.project / "cluster.yaml").write_text(text + "".join(f"{key}: {json.dumps(keys[key])}\n" for key in keys))
