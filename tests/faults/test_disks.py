"""Disks that fill up while a run trains."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.desk import Desk
from tests.faults import report
from tests.faults.report import Row
from tests.faults.scene import RECOVERY_S
from tests.faults.ways import ASYNC, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]


def on_full_host(host: FleetHost, task: str) -> dict[str, Any]:
    """The task's entry in state.json; its disk is seen on the host only."""
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
        eventually(lambda: on_full_host(host, "worker:2")["state"] == "running", RECOVERY_S, "worker:2 to be back")
        scene.enough()
        user.dtctl("wait", timeout_s=120)
        rows.append(report.measure("the disk of the run directory is full", "async-ps", struck, scene.story()))
        user.dtctl("down", "--yes")
        eventually(lambda: not host.processes(), RECOVERY_S, "the end of all")


@pytest.mark.nightly
def test_a_full_disk_under_the_checkpoints(fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    """The chief's save fails and it with it; when there is room again it goes on from the last complete one."""
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
