"""The coordinator's host is lost permanently: another host coordinates, and the run stays under control."""

from __future__ import annotations

import json

import pytest

from tests.desk import Desk
from tests.faults.scene import ASYNC, Way, stand_in
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

TAKES_OVER_S = 30.0

TWO = Way("async-ps", {"ps": "gpu-1", "worker": "gpu-[3,1]"}, {"way": "async"})
"""Two hosts with tasks; the lead is on gpu-3."""


def lost_tasks(user: Desk) -> list[str]:
    return [task["task"] for task in user.status()["tasks"] if task["state"] == "lost"]


def test_run_without_its_coordinators_host_recovers_and_can_be_shown_and_stopped(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, ASYNC)
    scene.up()
    lost = fleet["gpu-3"]
    fleet.crash(lost)
    eventually(lambda: scene.coordinator() is not lost, TAKES_OVER_S, "another coordinator")
    scene.kill("ps:1")
    eventually(lambda: (scene.task("ps:1")["attempt"], scene.task("ps:1")["state"]) == (2, "running"), 60, "the ps")
    eventually(lambda: lost_tasks(user) == ["worker:0"], 60, "the others to report to it")
    events = json.loads(user.dtctl("events", "-o", "json"))["events"]
    reported = [line["reason"] for line in events]
    assert any("in place of gpu-3" in reason for reason in reported), reported
    assert any(line["task"] == "ps:1" and line["kind"] == "decision" for line in events)

    fleet.power_on(lost)
    eventually(lambda: scene.cluster()["hosts"]["gpu-3"]["connected"], 60, "the host that was gone")
    assert scene.coordinator() is not lost
    eventually(lambda: scene.task("worker:0")["state"] == "running", 60, "the chief")
    assert "gpu-3" in {one["host"] for one in user.status()["checkpoints"]}, "where the lead saves"
    assert f"gpu-3:{lost.login.home_inside}/{scene.output}" in user.dtctl("status")
    scene.enough()
    user.dtctl("wait", timeout_s=120)
    assert user.status()["conditions"][0]["type"] == "Succeeded"


@pytest.mark.nightly
def test_two_hosts_and_an_arbiter_survive_the_loss_of_the_coordinators_host(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, TWO, arbiters=["gpu-5"])
    scene.up()
    lost = fleet["gpu-3"]
    fleet.crash(lost)
    eventually(lambda: scene.coordinator() is not lost, TAKES_OVER_S, "another coordinator")
    scene.kill("ps:0")
    eventually(lambda: (scene.task("ps:0")["attempt"], scene.task("ps:0")["state"]) == (2, "running"), 60, "the ps")
    eventually(lambda: lost_tasks(user) == ["worker:0"], 60, "the loss to be shown")
    fleet.boot(lost)  # until then its files have the lead's state before the crash
    eventually(lambda: (scene.task("worker:0")["attempt"], scene.task("worker:0")["state"]) == (2, "running"), 90)
    scene.enough()
    user.dtctl("wait", timeout_s=120)
    user.dtctl("down", "--yes")
