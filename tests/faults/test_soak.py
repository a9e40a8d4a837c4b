"""Half an hour of random faults (SOAK_MINUTES changes it, FAULTS_SEED repeats it), and the run succeeds.

A third of the time it is the stand-in that trains, in the rest real TensorFlow.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.desk import Desk
from tests.faults import report
from tests.faults.report import Row
from tests.faults.scene import Scene
from tests.faults.seed import SEED
from tests.faults.soak import faults_until
from tests.faults.tensorflow_run import TRAINERS, tensorflow
from tests.faults.ways import ASYNC, stand_in
from tests.hosts.fleet import Fleet

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.faults,
    pytest.mark.nightly,
    pytest.mark.timeout(MINUTES * 60 + 900),
]

SILENCE_S = 120.0
"""Two faults together can leave a silence that the restart of one task does not end; then all are restarted."""

UNBOUNDED = {"max_restarts": 10000, "max_run_restarts": 10000}


def test_the_stand_in_survives_one_fault_after_the_other(fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    scene = stand_in(fleet, user, ASYNC, recovery={**UNBOUNDED, "stall": "6s"})
    rows.append(soak(scene, MINUTES / 3, "async-ps"))
    scene.enough()
    user.dtctl("wait", timeout_s=300)
    check_the_end(scene)


@pytest.mark.training
def test_tensorflow_survives_one_fault_after_the_other(fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    """It has to make as many steps as it can make in the time, and then some."""
    scene = tensorflow(fleet, user, int(MINUTES * 60 * 20), **UNBOUNDED)
    rows.append(soak(scene, MINUTES * 2 / 3, "async-ps, TensorFlow"))
    scene.enough(TRAINERS)
    user.dtctl("wait", timeout_s=600)
    check_the_end(scene)


def soak(scene: Scene, minutes: float, way: str) -> Row:
    print(f"FAULTS_SEED={SEED}")
    scene.recovery_s = max(scene.recovery_s, SILENCE_S + 120)
    scene.up()
    checkpoints = scene.complete_checkpoints()
    began = time.time()
    count = 0
    for name, strike in faults_until(time.monotonic() + minutes * 60, SEED, scene.places()):
        count += 1
        print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
        strike(scene)
        scene.recover()
        assert scene.lost_checkpoints(checkpoints) == []
        checkpoints = scene.complete_checkpoints()
    return report.summary(f"{count} random faults in {minutes:.0f} minutes", way, began, scene.story())


def check_the_end(scene: Scene) -> None:
    assert scene.cluster()["condition"]["type"] == "Succeeded"
    assert not any(host.processes() for host in scene.fleet.hosts)
