"""Runs in memory, from their start to what a person asks the status of; `python -m tests.unit.operations.recorded`
writes what `status -o json` says of each, and cluster.json, into recorded_status.json.

The file was written by the build whose records have version 4: whatever changes in the records since, the status of
the same run says the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.operations.snapshot import Coordination, RunStatus, Verdict, seen_now
from dtctl.render.machine.status import run_status
from tests.unit.agent.coordinate.simulated import simulate
from tests.unit.agent.coordinate.world import World, running
from tests.unit.coordinated import HOSTS, record

RECORDED = Path(__file__).with_name("recorded_status.json")


def _world(**fields: Any) -> World:
    return World("async-ps", {task: host for host, task in HOSTS.items()}, run="digits-1", **fields)


def _begun(**fields: Any) -> World:
    world = running(_world(**fields))
    world.tell_step("worker:0", 1237)
    world.checkpoint = 1000
    world.run_for(1.0)
    return world


def _recovering() -> World:
    world = _begun()
    world.die("ps:0")
    world.run_for(0.5)
    return world


def _recovered() -> World:
    world = _recovering()
    world.until(lambda: world.attempts["ps:0"] == 2)
    world.run_for(3.0)
    world.tell_step("worker:0", 1240)
    world.run_for(3.0)
    return world


def _never_ready() -> World:
    world = _world(start_timeout_s=30.0)
    world.tasks["ps:0"].ready_s = 1e9
    world.run_for(90.0)
    return world


def _after(seconds: float, change: Callable[[World], object], **fields: Any) -> Callable[[], World]:
    def run() -> World:
        world = _begun(**fields)
        change(world)
        world.run_for(seconds)
        return world

    return run


SCENES: dict[str, Callable[[], World]] = {
    "running": _begun,
    "recovering": _recovering,
    "recovered": _recovered,
    "lost twice": _after(4.0, lambda world: world.die("ps:0", "worker:1")),
    "drained": _after(20.0, lambda world: world.request("drain", host="b")),
    "scaled": _after(20.0, lambda world: world.request("drain", job="worker", count=1)),
    "stopped": _after(20.0, lambda world: world.request("stop")),
    "one stopped": _after(20.0, lambda world: world.request("stop", ["worker:1"])),
    "restarted": _after(5.0, lambda world: world.request("restart", ["worker:1"])),
    "permanent": _after(20.0, lambda world: world.die("worker:0", code=2)),
    "past the budget": _after(20.0, lambda world: world.die("ps:0", code=1), recovery={"max_restarts": 0}),
    "succeeded": _after(90.0, lambda world: world.die("worker:0", code=0)),
    "a ps that ended": _after(12.0, lambda world: world.die("ps:1", code=0)),
    "never ready": _never_ready,
    "unreachable": _after(30.0, lambda world: world.cut.add("d")),
    "gone": _after(90.0, lambda world: world.cut.add("d"), recovery={"host_timeout_s": 60.0}),
}


def status_of(view: Any, wall: float) -> dict[str, Any]:
    known = record()
    coordination = Coordination.of(view, known.roster, known.idle_hosts)
    verdict = seen_now(Verdict.of_condition(view["condition"]), coordination.tasks)
    return json.loads(json.dumps(run_status(RunStatus(known, coordination.tasks, verdict, (), wall, coordination))))  # type: ignore[no-any-return]


def main() -> None:
    with pytest.MonkeyPatch.context() as patch:
        simulate(patch)
        found = {}
        for name, scene in SCENES.items():
            world = scene()
            found[name] = {"time": world.wall, "status": status_of(world.data, world.wall), "view": world.data}
    RECORDED.write_text(json.dumps(found, separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
