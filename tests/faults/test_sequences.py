"""Random faults in pairs and sequences on real hosts, with each strategy: the run recovers from all of them.

FAULTS is their number, FAULTS_SEED repeats them. Many more of them on a simulated clock:
tests/unit/agent/coordinate/test_sequences.py.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.desk import Desk
from tests.faults.cut_and_command import Commanded, plan
from tests.faults.random_faults import CommandFailed, episode, strike
from tests.faults.scene import ASYNC, COLLECTIVE, STRATEGY, SYNC, Scene, Way, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet

FAULTS = int(os.environ.get("FAULTS", "100"))
SEED = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(10**6)))
CLIENTS = 2
FAULTS_A_COMMAND = 12
"""A command after a cut takes as long as so many faults."""

PATIENCE_S = 300.0
"""Two timeouts of 120 s, one after the other, and the starts."""

HOME_MIB = 64

WAYS = (ASYNC, SYNC, STRATEGY, COLLECTIVE)

pytestmark = [pytest.mark.fleet, pytest.mark.faults, pytest.mark.nightly, pytest.mark.timeout(600 + FAULTS * 60)]

FAR = 10**9
"""A task that has reached its target step may be silent for any time while it closes."""

RECOVERY = {"max_restarts": 10000, "max_run_restarts": 10000, "stall": "6s", "first_step": "20s", "repeat": 0}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.strategy)
def test_a_run_survives_simultaneous_faults(way: Way, fleet: Fleet, user: Desk) -> None:
    with faults.small_homes(fleet, HOME_MIB):
        scene = stand_in(fleet, user, way, recovery=RECOVERY, target_step=FAR)
        scene.up()
        worst = strike_and_recover(scene, own_faults(way, user), max(1, FAULTS // (len(WAYS) * CLIENTS)))
        print(f"{way.strategy}: {worst:.0f} s at worst")
        scene.recovery_s = PATIENCE_S
        scene.enough()
        user.dtctl("wait", timeout_s=300)
        assert scene.cluster()["condition"]["type"] == "Succeeded"
        user.dtctl("down", "--yes", timeout_s=120)  # the homes are lost at the end


def own_faults(way: Way, user: Desk) -> random.Random:
    """Other faults for each strategy and client; the same for the same FAULTS_SEED."""
    return random.Random(f"{SEED} {way.strategy} {user.client}")


def strike_and_recover(scene: Scene, rng: random.Random, count: int) -> float:
    """Returns the longest time from the end of an episode until the run was whole; fails with all events of one."""
    worst, struck = 0.0, 0
    lead = scene.run_file(scene.fleet["gpu-3"], "spec.json")["lead"]
    places, scene.recovery_s = scene.places(), PATIENCE_S
    while struck < count:
        story = episode(rng, places, lead)
        struck += len(story)
        reported = "; ".join(f"{fault.after_s:.1f} s {fault.name}" for fault in story)
        _report(f"FAULTS_SEED={SEED} fault {struck}: {reported}")
        try:
            strike(scene, story)
            over = time.monotonic()
            scene.recover()
        except (AssertionError, CommandFailed) as error:
            where = f"FAULTS_SEED={SEED}, fault {struck}: {reported}"
            raise AssertionError(f"not recovered: {where}\n{error}") from None
        took_s = time.monotonic() - over
        _report(f"    recovered in {took_s:.1f} s")
        worst = max(worst, took_s)
    return worst


SHARED = (
    (ASYNC, {"ps:0": "gpu-1", "worker:0": "gpu-3", "worker:1": "gpu-4"}),
    (COLLECTIVE, {"worker:0": "gpu-3", "worker:1": "gpu-4", "worker:2": "gpu-5"}),
)


@pytest.mark.parametrize(("way", "places"), SHARED, ids=[way.strategy for way, _ in SHARED])
def test_nothing_acts_beside_its_successor_after_a_cut(
    way: Way, places: dict[str, str], fleet: Fleet, user: Desk
) -> None:
    run = Commanded(fleet, user, way, places)
    rng = own_faults(way, user)
    run.up()
    for number in range(max(1, FAULTS // (len(SHARED) * CLIENTS * FAULTS_A_COMMAND))):
        what = plan(rng, sorted(run.places), "worker:0")
        _report(f"FAULTS_SEED={SEED} command {number + 1}: {what}")
        began = time.monotonic()
        try:
            done = run.carry_out(what)
        except AssertionError as error:
            raise AssertionError(f"FAULTS_SEED={SEED}, command {number + 1}: {what}\n{error}") from None
        _report(f"    {done}; over after {time.monotonic() - began:.1f} s")
        if what.command == "down":
            run.up()
    user.dtctl("down", "--yes", timeout_s=120)


def _report(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
