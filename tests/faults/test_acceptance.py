"""Close the laptop and go home: the run looks after itself, and tells its story to whoever asks later."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.desk import Desk, desk
from tests.faults.scene import RECOVERY_S
from tests.faults.ways import ASYNC, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]


def test_a_run_without_its_controller_mends_itself_and_ends(fleet: Fleet, user: Desk, tmp_path: Path) -> None:
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

    with desk(tmp_path / "elsewhere", name=user.name) as other:
        (other.project / "cluster.yaml").write_text((user.project / "cluster.yaml").read_text())
        status = other.status()
        assert status["conditions"][0]["type"] == "Succeeded"
        assert {task["state"] for task in status["tasks"]} == {"succeeded", "stopped"}
        restarts = {task["task"]: task["attempt"] - 1 for task in status["tasks"]}
        assert restarts == {"ps:0": 1, "ps:1": 0, "worker:0": 1, "worker:1": 1, "worker:2": 1}
        events = json.loads(other.dtctl("events", "-o", "json"))["events"]
        told = {line["task"] for line in events if line["kind"] == "decision"}
        assert {"ps:0", "worker:0", "worker:1"} <= told
        assert any(line["kind"] == "contact" and line["host"] == "gpu-5" for line in events)
        other.dtctl("wait")
