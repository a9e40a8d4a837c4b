"""A cut that is longer than a host lets its tasks run: they are held still, and TensorFlow trains on after it.

It continues in the same attempt, unless it is synchronous and its chief was held: that ends with an error when it
continues, so every task starts again.
"""

from __future__ import annotations

import time

import pytest

from tests.desk import Desk
from tests.faults.scene import Scene
from tests.faults.tensorflow_run import PS_ASYNC, PS_SYNC, tensorflow
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.faults,
    pytest.mark.training,
    pytest.mark.nightly,
    pytest.mark.timeout(900),
]

CUT_S = 48.0
HELD_AFTER_S = 40.0
"""30 s, and what a busy machine takes."""

GOES_ON_S = 60.0
STEPS = 10**6
TASKS = {"gpu-3": "worker:0", "gpu-4": "worker:1"}


def cut(scene: Scene, host: str) -> None:
    """The host is cut off for so long that its agent holds its task."""
    fleet, task = scene.fleet, TASKS[host]
    began = time.monotonic()
    fleet.cut(fleet[host])
    try:
        eventually(lambda: scene.task(task)["held"], HELD_AFTER_S, f"{task} to be held")
        print(f"{task} is held after {time.monotonic() - began:.0f} s")
        time.sleep(max(0.0, began + CUT_S - time.monotonic()))
    finally:
        fleet.heal(fleet[host])


@pytest.mark.parametrize("host", TASKS)
def test_asynchronous_training_goes_on_in_the_same_attempt(fleet: Fleet, user: Desk, host: str) -> None:
    scene = tensorflow(fleet, user, STEPS, PS_ASYNC)
    scene.up()
    cut(scene, host)
    healed, before = time.monotonic(), scene.steps()[TASKS[host]]
    eventually(lambda: scene.steps()[TASKS[host]] > before, GOES_ON_S, "a step of the task that was held")
    print(f"the next step {time.monotonic() - healed:.1f} s after the link was back")
    scene.recover()
    assert scene.restarted() == []
    assert scene.cluster()["incidents"] == []
    user.dtctl("down", "--yes", timeout_s=120)


def test_synchronous_training_continues_in_the_same_attempt_after_a_hold(fleet: Fleet, user: Desk) -> None:
    scene = tensorflow(fleet, user, STEPS, PS_SYNC)
    scene.up()
    cut(scene, "gpu-4")
    healed = time.monotonic()
    before = scene.steps()["worker:0"]
    try:
        scene.wait_until(lambda: scene.steps().get("worker:0", 0) > before, "another step of the chief")
        scene.recover()
    finally:
        print(f"{time.monotonic() - healed:.1f} s after the link was back: {scene.steps()}, again: {scene.restarted()}")
        print([{name: one[name] for name in ("task", "reason", "tasks")} for one in scene.cluster()["incidents"]])
    assert scene.restarted() == []
    assert scene.cluster()["incidents"] == []
    user.dtctl("down", "--yes", timeout_s=120)


def test_synchronous_training_starts_again_when_its_chief_was_held(fleet: Fleet, user: Desk) -> None:
    scene = tensorflow(fleet, user, STEPS, PS_SYNC)
    scene.up()
    cut(scene, "gpu-3")
    healed, newest = time.monotonic(), scene.newest_step()
    eventually(lambda: set(scene.restarted()) == set(scene.places()), scene.recovery_s, "every task to start again")
    scene.recover()
    print(f"it trains again {time.monotonic() - healed:.1f} s after the link was back")
    incidents = scene.cluster()["incidents"]
    for one in incidents:
        print({name: one[name] for name in ("task", "reason", "scope", "tasks", "step", "back_to")})
    assert {name: entry["attempt"] for name, entry in scene.tasks().items()} == dict.fromkeys(scene.places(), 2)
    assert len(incidents) == 1
    assert incidents[0]["back_to"] >= newest, "no step that was saved is lost"
    user.dtctl("down", "--yes", timeout_s=120)
