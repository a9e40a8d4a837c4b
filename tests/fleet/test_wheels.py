"""`wheels: true`: hosts without an index train with wheels that pip gets on this machine."""

from __future__ import annotations

import re

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
  command: [python, -c, "import probe, sys, time; print(probe.VERSION, sys.prefix, flush=True); time.sleep(600)"]
  environment: {requirements: requirements.txt, wheels: true}
"""


def test_hosts_without_an_index_install_the_wheels_of_this_machine(user: Desk, fleet: Fleet) -> None:
    index = user.home / "index"
    make_wheel(index, "probe")
    user.env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PYTHONWARNINGS": ""}
    (user.project / "cluster.yaml").write_text(CLUSTER)
    (user.project / "requirements.txt").write_text("probe\n")

    refused = user.run("up")
    assert refused.returncode == 5
    assert "wheels: pip wheel -r requirements.txt" in refused.stderr
    user.dtctl("allow")
    assert "pip gets on this machine" in user.dtctl("plan")

    started = user.run("up")
    assert started.returncode == 0, started.stderr
    assert re.search(r"^gpu-\[1-2\]: 1 wheel, [\d.]+ k?B, in \d+ s \(log: .*\.log\)$", started.stderr, re.M)
    assert re.search(r"^gpu-2: set up in \d+ s \(dtctl logs --setup\)$", started.stderr, re.M)
    assert "Looking in links" not in started.stderr
    assert user.dtctl("logs").count("1.0 /") == 2
    assert "/tree/probe-1.0-py3-none-any.whl" in user.dtctl("logs", "--setup")

    again = user.run("up", "--replace", "--set", "recovery.max_restarts=3")
    assert "wheel" not in again.stderr, "the environments are there"
    user.dtctl("stop")
    user.dtctl("gc", "--yes")
    assert not list(fleet["gpu-1"].home.rglob(".dtctl/bundles/**/*.whl"))

    (user.project / "requirements.txt").write_text("probe\nother\n")
    assert "you have not allowed it" in user.run("up").stderr, "other requirements are other programs"
    user.dtctl("allow")
    failed = user.run("up")
    assert failed.returncode == 5
    assert "error: pip on this machine cannot get the wheels for Python 3" in failed.stderr
    assert "No matching distribution found for other" in failed.stderr
