"""`wheels: DIR`: hosts without an index install what was put there; nothing is run or built on this machine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.hosts.fleet import Fleet
from tests.wheels import make_wheel

pytestmark = pytest.mark.fleet

CLUSTER = """\
name: demo
hosts: {gpu-1: , gpu-2: }
jobs: {worker: {hosts: [gpu-1, gpu-2]}}
trainer:
  code: code
  command: [python, -c, "import probe, sys, time; print(probe.VERSION, sys.prefix, flush=True); time.sleep(600)"]
  environment: {requirements: requirements.txt, wheels: wheels}
"""


@pytest.fixture
def project(user: Desk) -> Path:
    user.env["PYTHONWARNINGS"] = ""
    (user.project / "cluster.yaml").write_text(CLUSTER)
    (user.project / "code").mkdir()
    (user.project / "code/requirements.txt").write_text("probe\n")
    make_wheel(user.project / "wheels", "probe")
    return user.project


def test_hosts_without_an_index_install_wheels_that_are_sent_once(user: Desk, fleet: Fleet, project: Path) -> None:
    assert f"from the wheels in {project}/wheels, which are sent, and from no index" in user.dtctl("plan")
    started = user.run("up")
    assert started.returncode == 0, started.stderr
    assert re.search(r"^gpu-\[1-2\]: 1 of 1 wheel \([\d.]+ k?B\) sent$", started.stderr, re.M)
    assert user.dtctl("logs").count("1.0 /") == 2
    assert "no-index" not in user.dtctl("logs", "--setup")
    again = user.run("up", "--replace", "--set", "recovery.max_restarts=3")
    assert again.returncode == 0, again.stderr
    assert "wheel" not in again.stderr, "the environments are there"

    make_wheel(project / "wheels", "probe", "2.0")
    assert "1 of 2 wheels" in user.run("up", "--replace").stderr, "the hosts have the other one"
    assert user.dtctl("logs").count("2.0 /") == 2, "other wheels make another environment"
    user.dtctl("stop")
    user.dtctl("down", "--yes")
    assert not list(fleet["gpu-1"].home.rglob(".dtctl/bundles/**/*.whl"))

    shutil.move(project / "wheels/probe-2.0-py3-none-any.whl", project / "wheels/other-1.0-cp27-cp27m-win32.whl")
    (project / "code/requirements.txt").write_text("probe\nother\n")
    failed = user.run("up")
    assert failed.returncode == 5
    assert "No matching distribution found for other" in failed.stderr, "pip's own sentence"
    assert "packages come from the wheels alone" in failed.stderr


EVIL = """\
import os
open(os.path.expanduser("~/built"), "w").close()
raise SystemExit("built")
"""
FORMS = {
    "of a file that was not there yet": "--pre -r hidden.txt\n",
    "abbreviated": "--requirem=hidden.txt\n",
    "the second of a line": "-r other.txt -r hidden.txt\n",
    "by a variable": "-r ${PWD}/hidden.txt\n",
    "in utf-7": "# -*- coding: utf-7 -*-\n+AC0-r hidden.txt\n",
    "the directory itself": "--pre\n./evil\n",
    "an index": "--pre --index-url http://127.0.0.1:1/\nprobe\n",
}


def test_what_a_cloned_directory_names_is_neither_built_nor_run_here(user: Desk, fleet: Fleet, project: Path) -> None:
    """After the user has said yes to all that it asks for, a `git pull` brings more."""
    user.run("allow")
    (project / "code/evil").mkdir()
    (project / "code/evil/setup.py").write_text(EVIL)
    for name in ("hidden.txt", "other.txt"):
        (project / "code" / name).write_text("./evil\n")
    for form, text in FORMS.items():
        (project / "code/requirements.txt").write_text(text)
        for words in (["plan"], ["check"], ["up", "--no-check"]):
            done = user.run(*words)
            assert "Traceback" not in done.stderr, form
            assert not (user.home / "built").exists(), form
        if form != "an index":
            assert done.returncode == 5, form
            assert "only the files named in trainer.environment are there" in done.stderr, form
    assert not list(fleet["gpu-1"].home.glob("built")), "the files are not there on the hosts either"


def test_uv_and_its_lock_are_read_on_the_hosts_alone(user: Desk, fleet: Fleet, project: Path) -> None:
    """A lock may name a directory in a form that a simple parser does not recognise."""
    cluster = CLUSTER.replace("requirements: requirements.txt", "uv: true")
    (project / "cluster.yaml").write_text(cluster)
    (project / "code/pyproject.toml").write_text('[project]\nname = "app"\nversion = "1"\n')
    (project / "code/uv.lock").write_text(
        'version = 1\nrequires-python = ">=3.8"\n[[package]]\n'
        'source = {directory = "evil"}\nname = "evil"\nversion = "1"\n'
    )
    (project / "code/evil").mkdir()
    (project / "code/evil/setup.py").write_text(EVIL)
    stand_in = user.home / "bin/uv"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\ntouch ~/built\n")
    stand_in.chmod(0o755)
    user.env["PATH"] = f"{stand_in.parent}:{user.env['PATH']}"
    done = user.run("up")
    assert done.returncode == 5
    assert "this host has no uv" in done.stderr
    assert not (user.home / "built").exists()
    assert not list(fleet["gpu-1"].home.glob("built"))
