"""Hangs beside other faults."""

from __future__ import annotations

import pytest

from tests.desk import Desk
from tests.faults.ways import ASYNC, stand_in
from tests.hosts.fleet import Fleet

pytestmark = [pytest.mark.fleet, pytest.mark.faults]


def test_a_worker_that_hangs_while_the_host_of_another_is_away_is_restarted(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, ASYNC, recovery={"stall": "6s"})
    scene.up()
    fleet.crash(fleet["gpu-5"])
    try:
        scene.host("worker:1").exec("touch", f"{scene.output}/hang-step-worker:1")
        scene.wait_until(lambda: scene.task("worker:1")["attempt"] == 2, "the restart of worker:1")
        assert scene.task("worker:1")["history"][0]["hung"]
        assert scene.task("worker:0")["attempt"] == 1
    finally:
        fleet.boot(fleet["gpu-5"])
    scene.recover()
    user.dtctl("down", "--yes")
