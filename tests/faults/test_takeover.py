"""Hosts are destroyed for good, and spares take their places by themselves: nobody is at a controller."""

from __future__ import annotations

import pytest

from tests.desk import Desk
from tests.faults.scene import Scene, Way, stand_in
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

WAY = Way("async-ps", {"ps": "gpu-1", "worker": "gpu-[3-4]"}, {"way": "async"})

REPLACE_S = 45.0
TAKEOVER_S = REPLACE_S + 60.0
"""For machines that are busy with other things."""


def scene_with_spares(fleet: Fleet, user: Desk) -> Scene:
    """Its checkpoints are in a directory that all hosts share."""
    output = fleet.shared / user.name
    return stand_in(
        fleet,
        user,
        WAY,
        spares=["gpu-2", "gpu-5"],
        dirs={"output": str(output)},
        grace="1s",
        recovery={"replace": f"{REPLACE_S:g}s"},
    )


def places(user: Desk) -> dict[str, str]:
    return {task["task"]: task["host"] for task in user.status()["tasks"]}


def trains(user: Desk, task: str) -> bool:
    found = next(one for one in user.status()["tasks"] if one["task"] == task)
    return found["state"] == "running" and found["step"] is not None


def test_a_spare_takes_the_place_of_the_leads_host(fleet: Fleet, user: Desk) -> None:
    scene = scene_with_spares(fleet, user)
    assert "takes its tasks" in user.dtctl("check", code=None) + user.dtctl("plan")
    user.dtctl("up", timeout_s=120)
    eventually(lambda: trains(user, "worker:0"), 60, "the lead to train")
    fleet.crash(fleet["gpu-3"])
    eventually(lambda: places(user)["worker:0"] in ("gpu-2", "gpu-5"), TAKEOVER_S, "a spare to take the lead's place")
    eventually(lambda: trains(user, "worker:0"), 60, "the lead to train there")
    there = places(user)["worker:0"]
    assert user.dtctl("exec", "worker:0", "--", "hostname").strip() == there
    assert f"{there} has taken the place of gpu-3" in user.dtctl("status")

    fleet.power_on(fleet["gpu-3"])  # it learns that it was replaced
    eventually(lambda: "spares: gpu-3" in user.dtctl("status"), 60, "the host that was replaced to be a spare")
    assert not any("trainer" in line for line in fleet["gpu-3"].processes())
    fleet["gpu-1"].exec("touch", f"{fleet.shared / user.name}/enough")
    user.dtctl("wait", timeout_s=120)
    assert user.status()["conditions"][0]["type"] == "Succeeded"
    del scene
