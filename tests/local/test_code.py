"""Which code ran: recorded by `up`, shown by other commands, and brought back by `dtctl code`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

import dtctl
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


def test_pointers_of_lfs_and_empty_submodules_are_in_json_and_logged(
    home: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (home.project / "train.py").write_text("print(1)\n")
    (home.project / "cluster.yaml").write_text(CLUSTER)
    (home.project / "sub").mkdir()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 700\n"
    (home.project / "weights.bin").write_text(pointer)
    git(home, "init", "-q", "-b", "main")
    git(home, "add", "-A")
    git(home, "commit", "-q", "-m", "First")
    git(home, "update-index", "--add", "--cacheinfo", f"160000,{git(home, 'rev-parse', 'HEAD')},sub")
    git(home, "commit", "-q", "-m", "Second")
    wanted = {"lfsPointers": ["weights.bin"], "emptySubmodules": ["sub"]}
    pushed = home.run("push", "--local", "-o", "json")
    assert wanted.items() <= json.loads(pushed.stdout).items()
    assert "weights.bin: only a pointer of Git LFS, not the content" in pushed.stderr
    assert wanted.items() <= json.loads(home.dtctl("up", "--local", "-o", "json")).items()
    for name in ("HOME", "PATH"):
        monkeypatch.setenv(name, home.env[name])
    monkeypatch.chdir(home.project)
    dtctl.load().push(local=True)
    assert "sub: a submodule without its files (git submodule update --init    fetches them)" in caplog.messages
