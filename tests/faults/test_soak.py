"""Half an hour of random faults (SOAK_MINUTES changes it, FAULTS_SEED repeats it), and the run succeeds.

A third of the time it is the stand-in that trains, in the rest real TensorFlow.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.desk import Desk
from tests.faults import report, scenarios
from tests.faults.report import Row
from tests.faults.scene import ASYNC, Scene, stand_in
from tests.faults.sequences import SEED
from tests.faults.tensorflow_run import TRAINERS, tensorflow
from tests.hosts.fleet import Fleet

MINUTES = float(os.environ.get("SOAK_MINUTES", "30")) / 2
"""Over each client."""

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
    scene = tensorflow(fleet, user, int(MINUTES * 60 * 20), recovery=UNBOUNDED)
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


Action = tuple[str, Callable[[Scene], None]]


def actions(tasks: dict[str, str]) -> list[Action]:
    """All that may happen to a run of these tasks ({task: host}), each with its name."""
    used = sorted(set(tasks.values()))
    return [
        *((f"kill -9 of {task}", scenarios.kill(task)) for task in tasks),
        *((f"kill -9 of {task} and its agent", scenarios.kill_agent_and_task(task)) for task in tasks),
        *((f"{task} is frozen", scenarios.freeze(task)) for task in tasks),
        *((f"kill -9 of the agent of {host}", scenarios.kill_agent(host)) for host in used),
        *((f"{host} loses files of its run", scenarios.lose_files(host, kill=False)) for host in used),
        *((f"{host} loses files of its run and its agent", scenarios.lose_files(host, kill=True)) for host in used),
        *((f"{host} loses its run", scenarios.lose_run(host)) for host in used),
        *((f"kill -9 of all on {host}", scenarios.kill_everything(host)) for host in used),
        *((f"{host} is cut off", scenarios.cut(host, 5)) for host in used),
        *((f"{host} reboots", scenarios.reboot(host)) for host in used),
        *((f"{host} hears nothing", scenarios.cut_one_way(host, 12, drop_incoming=True)) for host in used),
        *((f"{host} is not heard", scenarios.cut_one_way(host, 12, drop_incoming=False)) for host in used),
    ]


def faults_until(deadline: float, seed: int, tasks: dict[str, str]) -> Iterator[Action]:
    """Until the monotonic clock shows `deadline`."""
    rng = random.Random(seed)
    every = actions(tasks)
    while time.monotonic() < deadline:
        yield rng.choice(every)
