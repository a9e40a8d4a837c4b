"""Random faults in pairs and sequences on real hosts, in each way of training: none stays unhealed.

FAULTS says how many in all, FAULTS_SEED repeats them. The same on a clock that a test turns, and many more of them:
tests/unit/agent/coordinate/test_sequences.py.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.desk import Desk
from tests.faults.scene import ASYNC, COLLECTIVE, STRATEGY, SYNC, Scene, Way, stand_in
from tests.faults.sequences import SEED, episode, strike
from tests.hosts.fleet import Fleet

FAULTS = int(os.environ.get("FAULTS", "100"))
CLIENTS = 2

PATIENCE_S = 300.0
"""Two silences of 120 s, one after the other, and what starts them."""

WAYS = (ASYNC, SYNC, STRATEGY, COLLECTIVE)

pytestmark = [pytest.mark.fleet, pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(300 + FAULTS * 60)]

FAR = 10**9
"""Whoever has reached its target step may be silent while it closes, for as long as it takes."""

RECOVERY = {"max_restarts": 10000, "max_run_restarts": 10000, "stall": "6s", "first_step": "20s", "repeat": 0}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.strategy)
def test_a_run_survives_simultaneous_faults(way: Way, fleet: Fleet, user: Desk) -> None:
    scene = stand_in(fleet, user, way, recovery=RECOVERY, target_step=FAR)
    scene.up()
    worst = strike_and_mend(scene, SEED, FAULTS // (len(WAYS) * CLIENTS))
    print(f"{way.strategy}: {worst:.0f} s at worst")
    scene.recovery_s = PATIENCE_S
    scene.enough()
    user.dtctl("wait", timeout_s=300)
    assert scene.cluster()["condition"]["type"] == "Succeeded"


def strike_and_mend(scene: Scene, seed: int, count: int) -> float:
    """The longest time from the end of an episode until the run was whole; fails with the whole story of one."""
    rng, worst, struck = random.Random(seed), 0.0, 0
    lead = scene.run_file(scene.fleet["gpu-3"], "spec.json")["lead"]
    places, scene.recovery_s = scene.places(), PATIENCE_S
    while struck < count:
        story = episode(rng, places, lead)
        struck += len(story)
        told = "; ".join(f"{fault.after_s:.1f} s {fault.name}" for fault in story)
        print(f"{time.strftime('%H:%M:%S')} FAULTS_SEED={seed} fault {struck}: {told}", flush=True)
        strike(scene, story)
        over = time.monotonic()
        try:
            scene.recover()
        except AssertionError as error:
            raise AssertionError(f"not healed: FAULTS_SEED={seed}, fault {struck}: {told}\n{error}") from None
        took_s = time.monotonic() - over
        print(f"{time.strftime('%H:%M:%S')}     healed in {took_s:.1f} s", flush=True)
        worst = max(worst, took_s)
    return worst
