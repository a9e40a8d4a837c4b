"""Which code ran: recorded by `up`, shown by other commands, and brought back by `dtctl code`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from tests.desk import Desk
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

CLUSTER = """
name: demo
hosts: {here: {transport: local}}
jobs: {worker: {hosts: here, command: python train.py}}
trainer: {code: .}
"""
TRAINER = """
import os, time
print([os.environ.get(name, "") for name in ("DTCTL_COMMIT", "WANDB_GIT_COMMIT", "WANDB_GIT_REMOTE_URL")], flush=True)
time.sleep(1000)
"""


def git(home: Desk, *words: str) -> str:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    own = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", *words]
    done = subprocess.run(own, cwd=home.project, env=environ, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_code_that_was_never_committed_comes_back_and_its_commit_is_known(home: Desk) -> None:
    (home.project / "train.py").write_text(TRAINER)
    (home.project / "cluster.yaml").write_text(CLUSTER)
    git(home, "init", "-q", "-b", "main")
    git(home, "remote", "add", "origin", "https://me:pw@example.com/demo.git")
    git(home, "add", "-A")
    git(home, "commit", "-q", "-m", "First")
    first = git(home, "rev-parse", "HEAD")
    (home.project / "rate.py").write_text("rate = 0.1\n")
    home.dtctl("up", "--local")
    status = home.status()
    run = status["run"]
    url = "https://example.com/demo.git"
    assert status["revision"] == {
        "commit": first,
        "branch": "main",
        "remote": url,
        "note": "",
        "changedFiles": 1,
        "untrackedFiles": 1,
    }
    eventually(lambda: str([first, first, url]) in home.dtctl("logs"), 30, "what the trainer was given")
    assert f"code: {first[:12]} (main), 1 file differs" in home.dtctl("status")
    assert first[:12] in home.dtctl("runs")
    assert "+rate = 0.1" in home.dtctl("code", run)

    git(home, "add", "-A")
    git(home, "commit", "-q", "-m", "Rate")
    assert json.loads(home.dtctl("up", "--local", "-o", "json"))["run"] == run, "a commit alone changes no code"
    (home.project / "rate.py").write_text("rate = 0.2\n")
    refused = home.run("up", "--local")
    assert refused.returncode != 0
    assert f"the code of the live run is {first[:12]} (main), 1 file differs" in refused.stderr
    assert "files that differ: rate.py" in refused.stderr

    home.dtctl("code", run, "back")
    assert (home.project / "back" / "rate.py").read_text() == "rate = 0.1\n"
    assert home.run("code", run, "back").returncode == 2
    shutil.rmtree(home.project / "back")

    home.dtctl("up", "--local", "--replace")
    shown = home.dtctl("compare", run, home.status()["run"])
    assert f"+ {git(home, 'rev-parse', '--short=12', 'HEAD')} Rate" in shown
    assert "files that differ: rate.py" in shown
