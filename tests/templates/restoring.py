"""Checkpoints as the frameworks themselves read them, in a process of its own: its Python has what they need."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

Restore = Callable[[str, Path], int]
"""Python and directory -> the step of the newest checkpoint there, of which every tensor has been read."""

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
