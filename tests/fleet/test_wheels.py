"""`wheels: DIR`: hosts without an index install what was put there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.hosts.fleet import Fleet
from tests.wheels import make_wheel

pytestmark = pytest.mark.fleet

LARGE_BYTES = 2 << 20
"""So large that hosts look for it among all that they have."""

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
    make_wheel(user.project / "wheels", "probe", text=f"# {'x' * LARGE_BYTES}")
    return user.project


def test_hosts_without_an_index_install_wheels_that_are_sent_once(user: Desk, fleet: Fleet, project: Path) -> None:
    assert f"from the wheels in {project}/wheels, which are sent, and from no index" in user.dtctl("plan")
    started = user.run("up")
    assert started.returncode == 0, started.stderr
    assert re.search(r"^gpu-\[1-2\]: 1 of 1 wheel \(2\.\d MB\) sent$", started.stderr, re.M)
    assert user.dtctl("logs").count("1.0 /") == 2
    assert "no-index" not in user.dtctl("logs", "--setup")
    again = user.run("up", "--replace", "--set", "recovery.max_restarts=3")
    assert again.returncode == 0, again.stderr
    assert "wheel" not in again.stderr, "the environments are there"

    user.dtctl("gc", "--yes")
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
