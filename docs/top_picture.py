"""Draws docs/images/top.svg: the screen of `dtctl top` on a run of this machine, whose trainers are played.

python docs/screens.py --top    draws it; needs the extra `top`, and neither root nor TensorFlow
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests import event_files
from tests.documents.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from dtctl.operations.status import RunStatus
    from dtctl.render.top.app import Top

PICTURE = ROOT / "docs" / "images" / "top.svg"
SIZE = (110, 18)
_WITHIN_S = 180.0

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
        raise ConnectionError("worker:3 was told to break")
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
recovery: {max_restarts: 5, backoff: 20s..40s}
"""


def draw() -> None:
    """Once the run has trained for a while and has lost a worker."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        (home / "digits").mkdir()
        (home / "digits" / "train.py").write_text(TRAINER)
        (home / "digits" / "cluster.yaml").write_text(CLUSTER)
        (home / "digits" / "event_files.py").write_text(Path(event_files.__file__).read_text())
        with _at_home(home):
            _dtctl("up", "--local")
            try:
                svg = asyncio.run(_svg())
            finally:
                _dtctl("down", "--yes")
    same = re.sub(r"terminal-\d+-", "top-", svg)  # by which a page may hold several
    PICTURE.write_text("\n".join(line.rstrip() for line in same.splitlines()) + "\n", "utf-8")


async def _svg() -> str:
    app = _top()
    deadline = time.monotonic() + _WITHIN_S
    async with app.run_test(size=SIZE) as pilot:
        while not _worth_seeing(app.known.status):
            assert time.monotonic() < deadline, "the run is not worth a picture"
            await pilot.pause(0.2)
        await pilot.pause(3.0)
        return app.export_screenshot(title="dtctl top")


def _worth_seeing(status: RunStatus | None) -> bool:
    return status is not None and any(task.state.value == "backoff" for task in status.tasks.values())


def _top() -> Top:
    from dtctl.cli.scope import Scope
    from dtctl.operations.watching.feed import Feed
    from dtctl.operations.watching.loss import follow_loss
    from dtctl.operations.watching.run import watch_run
    from dtctl.render.top.app import Top

    scope = Scope("top")
    record, transport = scope.record(), scope.transport
    run = Feed(lambda: watch_run(record, transport)).start()
    loss = Feed(lambda: follow_loss(record, transport)).start()
    return Top(run, loss, lambda known, task: Feed(_no_log))


def _no_log() -> Generator[object, None, None]:
    yield from ()


def _dtctl(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "dtctl", *words], check=True)


@contextmanager
def _at_home(home: Path) -> Iterator[None]:
    before, here = os.environ.get("HOME", ""), Path.cwd()
    os.environ["HOME"] = str(home)
    os.chdir(home / "digits")
    try:
        yield
    finally:
        os.chdir(here)
        os.environ["HOME"] = before
