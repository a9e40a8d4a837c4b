"""A compromised host that votes, on a fleet: nobody obeys it, and `status`, `events` and `diagnose` name it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.faults.scene import ASYNC, Scene, stand_in
from tests.hostile import evil_voter
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

LARGEST = 2**53
ATTACKS_S = 25.0
TAKES_OVER_S = 60.0


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home", name="voters") as made:
        yield made


@contextmanager
def lying(scene: Scene, host: FleetHost, term: int) -> Iterator[None]:
    """Nothing else of the user runs on the host; the liar has its credentials, its port and its address."""
    directory = scene.run_directory(host)
    faults.kill_user(host)
    inside = ["nsenter", "--target", str(host.box.init), "--net"]
    with evil_voter.lying(host.name, directory, term, 600, inside=inside):
        yield
    eventually(lambda: not host.processes(), 30, "no honest agent: one that is back contradicts the liar")


def test_a_voter_that_lies_takes_no_run_over_and_ends_no_elections(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, ASYNC)
    scene.up()
    evil, others = fleet["gpu-4"], ("ps:0", "ps:1", "worker:0", "worker:2")
    before = {task: scene.pid(task) for task in others}
    with lying(scene, evil, 1000):
        time.sleep(ATTACKS_S)
        assert scene.coordinator() is fleet["gpu-3"]
        for shown in (user.dtctl("status", code=None), user.dtctl("events"), user.dtctl("diagnose", code=None)):
            assert "gpu-4 claims" in shown, shown
    assert {task: scene.pid(task) for task in others} == before
    steps = scene.steps()
    eventually(lambda: all(scene.steps()[task] != steps[task] for task in ("worker:0", "worker:2")), 60, "more steps")
    with lying(scene, evil, LARGEST):
        time.sleep(ATTACKS_S)
        assert scene.coordinator() is fleet["gpu-3"]
        fleet.crash(fleet["gpu-3"])
        eventually(lambda: scene.coordinator().name in ("gpu-1", "gpu-2", "gpu-5"), TAKES_OVER_S, "another coordinator")
        eventually(lambda: "gpu-4 claims" in user.dtctl("status", code=None), 60, "the new coordinator's warning")
