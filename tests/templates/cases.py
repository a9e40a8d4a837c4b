"""What each template is expected to do: one entry for each program that a template starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

Restore = Callable[[str, Path], int]
"""How a framework itself reads what it has saved, in a process of its own, whose Python has what that needs: Python and
directory -> the step of the newest checkpoint there, of which every tensor has been read."""

_TENSORFLOW = """
import sys
import tensorflow as tf
newest = tf.train.latest_checkpoint(sys.argv[1])
reader = tf.train.load_checkpoint(newest)
for name in reader.get_variable_to_shape_map():
    reader.get_tensor(name)
print(newest.rpartition("-")[2])
"""

_TORCH = """
import sys, torch
saved = torch.load(sys.argv[1] + "/checkpoint.pt", weights_only=True)
assert saved["model"] and saved["optimizer"]
print(saved["step"])
"""

_MXNET = """
import glob, sys
import mxnet as mx
newest = max(glob.glob(sys.argv[1] + "/step-*"), key=lambda path: int(path.rpartition("-")[2]))
values = mx.nd.load(newest + "/network.params").values()
assert values and all(bool((value.asnumpy() == value.asnumpy()).all()) for value in values)
print(newest.rpartition("-")[2])
"""


def tensorflow(python: str, directory: Path) -> int:
    return _run(python, _TENSORFLOW, directory)


def torch(python: str, directory: Path) -> int:
    return _run(python, _TORCH, directory)


def mxnet(python: str, directory: Path) -> int:
    return _run(python, _MXNET, directory)


def _run(python: str, program: str, directory: Path) -> int:
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        [python, "-c", program, str(directory)], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


ENDLESS = 100_000_000
"""Steps that no test waits for."""

OFTEN = "trainer.args.save_secs=2"
EVERY_STEPS = "trainer.args.save_steps=50"
ONE_PS = "jobs.ps.hosts=[node-1]"
"""Every task is an import of TensorFlow, eight seconds of a core."""

BOTH = "worker:0 worker:1"


@dataclass(frozen=True)
class Case:
    template: str
    lost: str
    """The task that is killed."""
    restarted: str
    """The tasks that then have a second attempt, and no others do."""
    steps: int
    """Enough to learn."""
    bound: float = 0.95
    """Of the accuracy on held-out data."""
    lead: str = "worker:0"
    settings: tuple[str, ...] = (OFTEN,)
    """What a test sets to be quick."""
    variant: str = ""
    by_day: bool = False
    """`make test` trains it too: one of each runtime, as a start of a framework takes ten seconds of a core."""
    environment: str = ""
    """Where the test's own does not do: a name of tests.environments."""
    restore: Restore = tensorflow
    """How the framework itself reads the newest checkpoint."""

    @property
    def has_tensorflow_checkpoints(self) -> bool:
        return self.restore is tensorflow

    @property
    def id(self) -> str:
        return "-".join(filter(None, (self.template, self.variant)))

    def overrides(self, train_steps: int) -> Iterator[str]:
        for setting in (*self.settings, f"trainer.args.train_steps={train_steps}"):
            yield from ("--set", setting)


SHARDED = Case(
    "ps-async", "worker:1", "worker:1", 1500, variant="sharded", settings=(OFTEN, "trainer.args.sharded=true")
)
"""Each ps writes a part: only where all hosts share a disk."""

CASES = [
    Case("ps-async", "worker:1", "worker:1", 1500),
    Case(
        "ps-async",
        "worker:1",
        "worker:1",
        1500,
        variant="partitioned",
        settings=(OFTEN, "trainer.args.placement=partitioned"),
    ),
    SHARDED,
    Case("ps-sync", "worker:1", "worker:1", 600),
    Case("supervisor", "worker:1", "worker:1", 1500, settings=(OFTEN, ONE_PS)),
    Case("in-graph", "worker:1", "worker:1", 600, lead="chief:0", settings=(OFTEN, ONE_PS)),
    Case("towers", "worker:0", "worker:0", 600),
    Case("towers", "worker:0", "worker:0", 600, variant="mirrored", settings=(OFTEN, "trainer.args.strategy=mirrored")),
    Case("ps-strategy", "worker:1", "worker:1", 1500, lead="chief:0", settings=(OFTEN, ONE_PS)),
    Case("multi-worker-mirrored", "worker:1", BOTH, 600, settings=(EVERY_STEPS,)),
    Case(
        "multi-worker-mirrored",
        "worker:1",
        BOTH,
        600,
        variant="fit",
        settings=(EVERY_STEPS, "trainer.command=[python, fit.py]"),
    ),
    Case("estimator", "worker:0", "worker:0", 1500, lead="master:0", environment="tensorflow-2.15"),
    Case("cifar10", "worker:1", BOTH, 300, bound=0.9, settings=("trainer.args.save_steps=20",)),
    Case(
        "mxnet-kvstore",
        "worker:1",
        f"{BOTH} server:0 scheduler:0",
        1200,
        environment="mxnet-1.9",
        restore=mxnet,
    ),
    Case("pytorch-ddp", "worker:1", BOTH, 1200, environment="torch", restore=torch),
]

TRAINED_ELSEWHERE = frozenset({"hello", "ps-async"})
"""tests.local.test_starting.py and tests/documents train them by day."""
