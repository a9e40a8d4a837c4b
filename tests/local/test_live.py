"""`dtctl dump` and `dtctl tensorboard` of live trainers on this machine; the latter with TensorBoard itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket

import pytest

from tests import event_files
from tests.browser import Page, tensorboards
from tests.desk import Desk
from tests.local.test_report import CLUSTER
from tests.waiting import eventually

TRAINER = """\
import os, pathlib, sys, time
import event_files as events

place = pathlib.Path(sys.argv[1], os.environ["DTCTL_TASK"].replace(":", "-"))
place.mkdir(parents=True, exist_ok=True)
def train():
    with open(place / "events.out.tfevents.1.host", "ab", buffering=0) as file:
        for step in range(100000):
            file.write(events.scalar(step, "loss", 1.0 / (step + 1)))
            print("step", step, flush=True)
            time.sleep(0.1)
train()
"""


@pytest.fixture
def live(home: Desk) -> Desk:
    shutil.copy(event_files.__file__, home.project / "event_files.py")
    (home.project / "train.py").write_text(TRAINER)
    home.env.pop("PYTHONWARNINGS")  # from TensorBoard's libraries
    home.write_cluster(CLUSTER)
    home.dtctl("up", "--local")
    eventually(lambda: all(task["step"] for task in home.status()["tasks"]), 60, "steps")
    return home


def test_stacks_of_live_trainers_are_shown_and_training_continues(live: Desk) -> None:
    eventually(lambda: live.run("dump").stdout.count("main thread") == 2, 60, "the stacks of both")
    shown = live.dtctl("dump")
    assert f"train ({live.home}" in shown
    assert "(by faulthandler)" in shown
    document = json.loads(live.dtctl("dump", "worker:1", "-o", "json"))
    (task,) = document["tasks"]
    assert (task["task"], task["state"], task["processes"][0]["missing"]) == ("worker:1", "running", None)
    assert {task["restarts"] for task in live.status()["tasks"]} == {0}
    live.dtctl("stop")
    ended = live.run("dump", "worker:0")
    assert (ended.returncode, "it has no process" in ended.stdout) == (1, True)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["there", "copies"])
@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL], ids=lambda one: one.name)
def test_tensorboard_shows_the_run_and_leaves_nothing(live: Desk, how: str, ended_by: signal.Signals) -> None:
    pytest.importorskip("tensorboard")
    copies = live.home / "tmp"
    copies.mkdir()
    live.env["TMPDIR"] = str(copies)
    with live.start("tensorboard", *(["--copy"] if how == "copies" else []), "-o", "json") as board:
        assert board.stdout is not None
        documents = (json.loads(line) for line in board.stdout if line.startswith("{"))
        tensorboard = next(one for one in documents if one["kind"] == "TensorBoard")  # notes are documents, too
        assert tensorboard["host"] == ("node-1" if how == "there" else None)
        label = "" if how == "there" else "out/"
        wanted = {f"{label}worker-0", f"{label}worker-1"}
        page = Page(tensorboard["url"])
        assert "<title>TensorBoard</title>" in page.below()
        eventually(lambda: wanted <= set(page.json("data/runs")), 60, "its runs")
        eventually(lambda: _steps(page, f"{label}worker-1") > 5, 60, "its points")
        before = _steps(page, f"{label}worker-1")
        eventually(lambda: _steps(page, f"{label}worker-1") > before, 60, "what the trainer adds")
        os.kill(board.pid, ended_by)
        assert board.wait(60) in (129, 130, -signal.SIGKILL)
    eventually(lambda: not tensorboards(str(live.home)), 60, "its end")
    eventually(lambda: not list(copies.iterdir()), 60, "the end of the copies")
    eventually(lambda: not list(live.home.rglob("tensorboard-*")), 60, "the end of its temporary files")


def _steps(page: Page, run: str) -> int:
    return len(page.json(f"data/plugin/scalars/scalars?tag=loss&run={run}"))


def test_tensorboard_listens_on_a_free_port(live: Desk) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = taken.getsockname()[1]
        done = live.run("tensorboard", "--port", str(port))
    assert done.returncode == 2
    assert "--port 0 takes a free one" in done.stderr
