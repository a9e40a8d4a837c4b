"""The same faults with real TensorFlow, one after the other in one run, which still learns its digits."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from tests.desk import desk
from tests.faults import report, scenarios
from tests.faults.report import Row
from tests.faults.scenarios import Strike
from tests.faults.scene import Scene
from tests.faults.tensorflow_run import TRAINERS, tensorflow
from tests.hosts.fleet import Fleet

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.faults,
    pytest.mark.training,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]

STEPS = 15000

WAY = "async-ps, TensorFlow"

FAULTS = [
    ("kill -9 of a worker", scenarios.kill("worker:1"), "worker:1"),
    ("kill -9 of a ps", scenarios.kill("ps:1"), "ps:1"),
    ("kill -9 of the chief", scenarios.kill("worker:0"), "worker:0"),
    ("kill -9 of an agent", scenarios.kill_agent("gpu-4"), ""),
    ("kill -9 of the coordinator", scenarios.kill_agent("gpu-3"), ""),
    ("a ps is frozen", scenarios.freeze("ps:0"), "ps:0"),
    ("a worker's host reboots", scenarios.reboot("gpu-4"), "worker:1"),
    ("a ps host is cut off for 60 s", scenarios.cut("gpu-1", 60), None),
    ("the newest checkpoint is damaged", scenarios.damage("worker:0"), "worker:0"),
]


@pytest.fixture(scope="module")
def scene(lasting_fleet: Fleet, tmp_path_factory: pytest.TempPathFactory, client: str) -> Iterator[Scene]:
    with desk(tmp_path_factory.mktemp("digits") / "home", name="digits", client=client) as user:
        made = tensorflow(lasting_fleet, user, STEPS)
        made.up()
        yield made
    lasting_fleet.restore()


@pytest.mark.parametrize(("name", "strike", "restarted"), FAULTS, ids=[name for name, _, _ in FAULTS])
def test_training_recovers(scene: Scene, rows: list[Row], name: str, strike: Strike, restarted: str | None) -> None:
    """`restarted` None: TensorFlow decides."""
    attempts = {task: entry["attempt"] for task, entry in scene.tasks().items()}
    checkpoints = scene.complete_checkpoints()
    struck = time.time()
    strike(scene)
    scene.wait_until(lambda: not restarted or scene.task(restarted)["attempt"] > attempts[restarted], "its restart")
    scene.recover()
    rows.append(report.measure(name, WAY, struck, scene.story(), time.time()))
    print(rows[-1])
    new = {task for task, entry in scene.tasks().items() if entry["attempt"] > attempts[task]}
    assert restarted is None or new == set(filter(None, [restarted]))
    if "damaged" not in name:
        assert scene.lost_checkpoints(checkpoints) == []


def test_the_run_ends_and_its_model_is_accurate(scene: Scene) -> None:
    scene.enough(TRAINERS)
    scene.user.dtctl("wait", timeout_s=600)
    assert scene.cluster()["condition"]["type"] == "Succeeded"
    assert scene.newest_step() >= STEPS
    result = json.loads((scene.fleet["gpu-3"].home / scene.output / "result.json").read_text())
    assert result["held_out_accuracy"] > 0.95
    log = scene.user.dtctl("logs", "worker:0", "-n", "all")
    assert float(re.findall(r"loss (\d+\.\d+)", log)[-1]) < 0.5
    assert not any(host.processes() for host in scene.fleet.hosts)
