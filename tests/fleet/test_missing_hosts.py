"""A run that begins without a host, which takes its part when it is back, or never does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.desk import Desk
from tests.fleet.test_run import left, write
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

ENOUGH = "/home/train/enough"


@contextmanager
def down(fleet: Fleet, name: str) -> Iterator[None]:
    fleet.crash(fleet[name])
    try:
        yield
    finally:
        fleet.boot(fleet[name])


def finish(fleet: Fleet, *but: str) -> None:
    for host in fleet.hosts:
        if host.name not in but:
            host.exec("touch", "enough")


def test_a_host_that_was_down_joins_with_the_next_up(user: Desk, fleet: Fleet) -> None:
    write(user, until_file=ENOUGH)
    with down(fleet, "gpu-4"):
        refused = user.run("up")
        assert refused.returncode == 4
        assert "dtctl up --allow-missing 1    goes on without it" in refused.stderr
        begun = user.run("up", "--allow-missing", "1")
        assert begun.returncode == 0, begun.stderr
        assert "the run continues without gpu-4: worker:3 is not started" in begun.stderr
        run = user.status()["run"]
        assert user.states() == {
            **dict.fromkeys(("ps:0", "ps:1", "worker:0", "worker:1", "worker:2"), "running"),
            "worker:3": "pending",
        }
        assert "without gpu-4: dtctl up" in user.dtctl("status")
        assert "has no part in the run" in user.run("restart", "worker:3").stderr
        before = {task["task"]: task["pid"] for task in user.status()["tasks"]}
    joined = json.loads(user.dtctl("up", "-o", "json"))
    assert (joined["run"], joined["unchanged"], joined["joined"], joined["missing"]) == (run, True, ["worker:3"], [])
    eventually(lambda: user.states()["worker:3"] == "running")
    now = {task["task"]: task["pid"] for task in user.status()["tasks"]}
    assert {**now, "worker:3": None} == before, "nobody else was touched"
    assert "gpu-4 has joined the run" in user.dtctl("events")
    finish(fleet)
    user.dtctl("wait")
    assert user.outcome() == "Succeeded"
    assert user.states()["worker:3"] == "succeeded"
    assert left(fleet) == {}


@pytest.mark.nightly
def test_a_join_that_is_given_up_takes_back_that_hosts_part_alone(user: Desk, fleet: Fleet) -> None:
    write(user, until_file=ENOUGH)
    with down(fleet, "gpu-4"):
        user.dtctl("up", "--allow-missing", "1")
    host = fleet["gpu-4"]
    host.exec("sh", "-c", "mkdir -p .dtctl/runs && chmod 500 .dtctl/runs")
    refused = user.run("up")
    assert refused.returncode == 7, refused.stderr
    assert "gpu-4" in refused.stderr
    states = user.states()
    assert states.pop("worker:3") == "pending"
    assert set(states.values()) == {"running"}
    host.exec("chmod", "700", ".dtctl/runs")
    user.dtctl("up")
    eventually(lambda: user.states()["worker:3"] == "running")
    finish(fleet)
    user.dtctl("wait")
    assert user.outcome() == "Succeeded"
