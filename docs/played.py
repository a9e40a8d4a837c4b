"""A run on this machine whose trainers are played, for pictures: they learn, one of them slowly, and one breaks.

It needs neither root nor TensorFlow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import event_files

WITHIN_S = 180.0
"""A picture has to be had by then."""

TRAINER = """\
import os, pathlib, random, time
import event_files

job, _, index = os.environ["DTCTL_TASK"].partition(":")
place = pathlib.Path("out", "train")
place.mkdir(parents=True, exist_ok=True)
name = f"events.out.tfevents.{time.time():.0f}.host"
events = open(place / name, "ab", buffering=0) if (job, index) == ("worker", "0") else None
print("begins", flush=True)
step = 0
while True:
    time.sleep(random.uniform(0.08, 0.12) * (2 if index == "4" else 1))
    step += job != "ps"
    loss = 2.3 / (1 + step / 80) + random.uniform(0, 0.06)
    if step:
        print(f"step {step} loss {loss:.4f}", flush=True)
    if events and step % 5 == 0:
        events.write(event_files.scalar(step, "loss", loss))
    if index == "3" and step == 220:
        raise OSError(28, "No space left on device", "out/worker-3.npz")
"""

CLUSTER = """\
name: digits
hosts:
  gpu-[1-3]:
jobs:
  ps: {hosts: "gpu-[1-2]"}
  worker: {hosts: [gpu-1, gpu-1, gpu-2, gpu-2, gpu-3, gpu-3]}
trainer:
  command: [python, train.py]
  dialect: none
  args: {train_steps: 2000}
dirs: {output: out}
recovery: {max_restarts: 5, backoff: 40s..90s}
"""


@contextmanager
def played() -> Iterator[Path]:
    """A home of its own, whose project is the working directory, with a run; all of it is removed at the end."""
    before, here = os.environ.get("HOME", ""), Path.cwd()
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory) / "digits"
        project.mkdir()
        (project / "train.py").write_text(TRAINER)
        (project / "cluster.yaml").write_text(CLUSTER)
        (project / "event_files.py").write_text(Path(event_files.__file__).read_text())
        os.environ["HOME"] = directory
        os.chdir(project)
        try:
            dtctl("up", "--local")
            try:
                yield Path(directory)
            finally:
                dtctl("down", "--yes")
        finally:
            os.chdir(here)
            os.environ["HOME"] = before


def dtctl(*words: str) -> str:
    """What it prints."""
    argv = [sys.executable, "-m", "dtctl", *words]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout
