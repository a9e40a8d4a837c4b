"""One run on five hosts for each fault: it recovers, ends by itself, is reported truly, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk, desk
from tests.faults import report
from tests.faults.report import Row
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.scene import ASYNC, RECOVERY_S, TARGET, Scene, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

DAILY = "async-ps: a ps host loses its power"
"""A connection that is kept stays half open."""

PARAMETERS = [
    pytest.param(one, id=one.id, marks=[pytest.mark.daily] * (one.id == DAILY) if one.quick else [pytest.mark.nightly])
    for one in SCENARIOS
]


@pytest.mark.parametrize("scenario", PARAMETERS)
def test_the_run_recovers_from_the_fault_and_ends(
    scenario: Scenario, fleet: Fleet, user: Desk, rows: list[Row]
) -> None:
    with scenario.around(fleet):
        row = come_to_its_end(scenario, stand_in(fleet, user, scenario.way, **scenario.settings))
    rows.append(row)
    print(row)


def come_to_its_end(scenario: Scenario, scene: Scene) -> Row:
    before: dict[str, Path] = {}
    struck = time.time()
    if scenario.outcome == "Failed":
        scene.user.dtctl("up")
    else:
        scene.up()
        before = scene.complete_checkpoints()
        struck = time.time()
        scenario.strike(scene)
        scene.wait_until(lambda: set(scenario.restarted.split()) <= set(scene.restarted()), "the restarts to begin")
        scene.recover()
        scene.enough()
    done = scene.user.run("wait", timeout_s=120)
    row = report.measure(scenario.name, scenario.way.strategy, struck, scene.story())

    assert done.returncode == (0 if scenario.outcome == "Succeeded" else 1), done.stderr
    assert row.outcome == scenario.outcome
    assert scene.cluster()["condition"]["cause"] == (scenario.cause or None)
    assert set(scene.restarted()) == set(scenario.restarted.split())
    assert (row.steps_lost is not None) == scenario.loses_steps
    assert scenario.cause or not row.restarts or row.recovered_s is not None
    assert row.recovered_s is None or row.recovered_s < scenario.within_s
    assert scene.lost_checkpoints(before) == []
    if scenario.outcome == "Succeeded":
        assert scene.newest_step() >= TARGET
    # Agents end a short time after their last report.
    eventually(lambda: not any(host.processes() for host in scene.fleet.hosts), what="nothing to be left on any host")
    return row


def on_full_host(host: FleetHost, task: str) -> dict[str, Any]:
    """The task's entry in state.json; its disk is visible only on the host."""
    files = "cat .dtctl/runs/*/*/state.json 2>/dev/null || echo '{}'"
    found: dict[str, Any] = json.loads(host.exec("sh", "-c", files)).get("tasks", {}).get(task, {})
    return found


def has_checkpoint(user: Desk) -> bool:
    found = json.loads(user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    return any(one["newestComplete"] for one in found)


def test_a_full_disk_under_the_run_directory(fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    host = fleet["gpu-5"]
    scene = stand_in(fleet, user, ASYNC)
    with faults.small_disk(host, ".dtctl", 8):
        user.dtctl("up")
        eventually(lambda: on_full_host(host, "worker:2").get("step"), RECOVERY_S, "the run to train")
        struck = time.time()
        with faults.full_disk(host, ".dtctl"):
            faults.send(host, on_full_host(host, "worker:2")["pid"])
            scene.goes_on()
            eventually(lambda: "cannot be written" in user.task("worker:2")["reason"], what="status to say so")
            assert "it starts again as soon as there is room" in user.run("restart", "worker:2").stderr
        eventually(lambda: on_full_host(host, "worker:2")["state"] == "running", RECOVERY_S, "worker:2 to be back")
        scene.enough()
        user.dtctl("wait", timeout_s=120)
        rows.append(report.measure("the disk of the run directory is full", "async-ps", struck, scene.story()))
        user.dtctl("down", "--yes")
        eventually(lambda: not host.processes(), RECOVERY_S, "the end of all")


@pytest.mark.nightly
def test_a_full_disk_under_the_checkpoints(fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    """The chief fails with its save; when there is space again it continues from the last complete one."""
    host = fleet["gpu-3"]
    scene = stand_in(fleet, user, ASYNC, recovery={"max_restarts": 50, "backoff": "200ms..500ms"})
    with faults.small_disk(host, scene.output, 1):
        user.dtctl("up")
        eventually(lambda: has_checkpoint(user), RECOVERY_S, "a checkpoint")
        struck = time.time()
        with faults.full_disk(host, scene.output):
            eventually(lambda: scene.task("worker:0")["attempt"] > 1, RECOVERY_S, "the chief to fail")
        scene.recover()
        scene.enough()
        user.dtctl("wait", timeout_s=120)
        rows.append(report.measure("the disk of the checkpoints is full", "async-ps", struck, scene.story()))


def test_a_run_without_its_controller_recovers_and_ends(fleet: Fleet, user: Desk, tmp_path: Path) -> None:
    scene = stand_in(fleet, user, ASYNC)
    scene.up()
    with user.start("logs", "-f") as following:
        for pid in user.processes():
            os.kill(pid, signal.SIGKILL)
    assert following.returncode == -signal.SIGKILL
    with faults.without_controllers(fleet):
        for task in ("ps:0", "worker:1", "worker:0"):
            scene.kill(task)
            scene.recover()
        fleet.crash(fleet["gpu-5"])
        fleet.power_on(fleet["gpu-5"])
        scene.recover()
        scene.enough()
        eventually(lambda: scene.cluster()["phase"] == "ended", RECOVERY_S, "the end of the run")
        eventually(lambda: not any(host.processes() for host in fleet.hosts), RECOVERY_S, "the end of every process")

    with desk(tmp_path / "elsewhere", name=user.name, client=user.client) as other:
        (other.project / "cluster.yaml").write_text((user.project / "cluster.yaml").read_text())
        status = other.status()
        assert status["conditions"][0]["type"] == "Succeeded"
        assert {task["state"] for task in status["tasks"]} == {"succeeded", "stopped"}
        restarts = {task["task"]: task["attempt"] - 1 for task in status["tasks"]}
        assert restarts == {"ps:0": 1, "ps:1": 0, "worker:0": 1, "worker:1": 1, "worker:2": 1}
        events = json.loads(other.dtctl("events", "-o", "json"))["events"]
        reported = {line["task"] for line in events if line["kind"] == "decision"}
        assert {"ps:0", "worker:0", "worker:1"} <= reported
        assert any(line["kind"] == "contact" and line["host"] == "gpu-5" for line in events)
        other.dtctl("wait")
