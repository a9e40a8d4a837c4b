"""A compromised host that votes, against a run on five hosts: what it claims moves nobody, and is shown with its name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.faults.scene import ASYNC, Scene, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

LARGEST = 2**53
ATTACKS_S = 25.0
TAKES_OVER_S = 60.0
EVIL = Path(__file__).with_name("evil_voter.py")


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", name="voters") as made:
        yield made


@contextmanager
def compromised(scene: Scene, host: FleetHost, term: int) -> Iterator[None]:
    """Its agent is gone for good, and a liar has its credentials, its port and its voice."""
    directory = scene.run_directory(host)
    for line in host.exec("ps", "-e", "-o", "pid=,args=", root=True).splitlines():
        pid, args = line.split(None, 1)
        if ".dtctl/agent" in args and "keeper" not in args:
            faults.send(host, int(pid))
    inside = f"/home/train/{directory.relative_to(host.home)}"
    argv = [sys.executable, str(EVIL), host.name, inside, str(term), "600"]
    liar = host.box.popen(argv, env={"PYTHONPATH": os.getcwd()})
    try:
        assert liar.stdout is not None
        assert liar.stdout.readline() == b"ready\n"
        yield
    finally:
        liar.kill()
        liar.wait()


def test_a_voter_that_claims_to_coordinate_is_followed_by_nobody(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, ASYNC)
    scene.up()
    evil = fleet["gpu-4"]
    print(evil.exec("ps", "-ef", root=True))
    print(scene.run_file(evil, "spec.json")["voters"])
