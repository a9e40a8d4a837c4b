"""A cut of the network leaves a worker hanging: it is restarted after a minute, and its peers are not."""

from __future__ import annotations

import time

import pytest

from tests.desk import Desk
from tests.faults.scene import ASYNC, stand_in
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults, pytest.mark.nightly]

CUT_S = 18.0
FOUND_S = 200.0
"""Well before `stall: auto` ends anything, which is five minutes after the last step."""


def test_a_worker_that_hangs_since_a_cut_is_restarted_long_before_its_stall_limit(fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, ASYNC)
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
