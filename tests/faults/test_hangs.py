"""Hangs that no limit of one task finds: since a cut of the network, and at the very first start."""

from __future__ import annotations

import time

import pytest

from tests.desk import Desk
from tests.faults.scene import ASYNC, COLLECTIVE, stand_in
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults, pytest.mark.nightly]

FAR = 10**9
"""A task that has reached its target step may be silent for any time while it closes."""

CUT_S = 18.0
FOUND_S = 200.0
"""Well before `stall: auto` ends anything, which is five minutes after the last step."""


def test_a_worker_that_hangs_since_a_cut_is_restarted_long_before_its_stall_limit(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, ASYNC, target_step=FAR)
    scene.up()
    hanging = scene.host("worker:2")
    fleet.cut(hanging)
    hanging.exec("touch", f"{scene.output}/hang-step-worker:2")
    time.sleep(CUT_S)
    fleet.heal(hanging)
    ended = time.monotonic()
    eventually(lambda: scene.task("worker:2")["attempt"] == 2, FOUND_S, "the worker to be restarted")
    print(f"restarted {time.monotonic() - ended:.0f} s after the end of the cut")
    scene.recover()
    assert scene.restarted() == ["worker:2"]
    [past] = scene.task("worker:2")["history"]
    assert past["hung"]


def test_a_collective_that_hangs_at_its_very_first_start_starts_again(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, COLLECTIVE)
    fleet["gpu-4"].exec("mkdir", "-p", scene.output)
    fleet["gpu-4"].exec("touch", f"{scene.output}/hang-start-worker:1")
    began = time.monotonic()
    with user.start("up") as starting:
        eventually(lambda: set(scene.restarted()) == {"worker:0", "worker:1", "worker:2"}, 300.0, "another start")
        print(f"restarted {time.monotonic() - began:.0f} s after `up`")
        starting.communicate()
    assert starting.returncode == 0
    scene.recover()
    assert [one["why"][0]["kind"] for one in scene.cluster()["incidents"]] == ["never_began"]
