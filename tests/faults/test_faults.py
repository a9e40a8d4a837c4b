"""One run on five hosts for each fault: it recovers, ends by itself, tells the truth, and leaves nothing behind."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.faults import report
from tests.faults.report import Row
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.faults.scene import Scene
from tests.faults.ways import TARGET, stand_in
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults]

PARAMETERS = [pytest.param(one, id=one.id, marks=[] if one.quick else [pytest.mark.nightly]) for one in SCENARIOS]


@pytest.mark.parametrize("scenario", PARAMETERS)
def test_the_run_comes_to_its_end(scenario: Scenario, fleet: Fleet, user: Desk, rows: list[Row]) -> None:
    with scenario.around(fleet):
        row = come_to_its_end(scenario, stand_in(fleet, user, scenario.way, **scenario.settings))
    rows.append(row)
    print(row)


def come_to_its_end(scenario: Scenario, scene: Scene) -> Row:
    before: dict[str, Path] = {}
    struck = time.time()
    if scenario.outcome == "Failed":
        scene.user.dtctl("up")
    else:
        scene.up()
        before = scene.complete_checkpoints()
        struck = time.time()
        scenario.strike(scene)
        scene.wait_until(lambda: set(scenario.restarted.split()) <= set(scene.restarted()), "the restarts to begin")
        scene.recover()
        scene.enough()
    done = scene.user.run("wait", timeout_s=120)
    row = report.measure(scenario.name, scenario.way.strategy, struck, scene.story())

    assert done.returncode == (0 if scenario.outcome == "Succeeded" else 1), done.stderr
    assert row.outcome == scenario.outcome
    assert scene.cluster()["condition"]["cause"] == (scenario.cause or None)
    assert set(scene.restarted()) == set(scenario.restarted.split())
    assert (row.steps_lost is not None) == scenario.loses_steps
    assert scenario.cause or not row.restarts or row.recovered_s is not None
    assert row.recovered_s is None or row.recovered_s < scenario.within_s
    assert scene.lost_checkpoints(before) == []
    if scenario.outcome == "Succeeded":
        assert scene.newest_step() >= TARGET
    # Agents end a moment after they have told their last.
    eventually(lambda: not any(host.processes() for host in scene.fleet.hosts), what="nothing to be left on any host")
    return row
