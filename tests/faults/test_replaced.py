"""A host is cut off, its tasks are replaced by a person, and it returns: nothing of the old run acts beside the new."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.desk import Desk
from tests.faults.scene import Scene, Way, stand_in
from tests.hosts import faults
from tests.hosts.fleet import Fleet, FleetHost
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.faults, pytest.mark.nightly]

WAY = Way("async-ps", {"ps": "gpu-1", "worker": "gpu-[2-4]"}, {"way": "async"})
CUT_S = 8.0


SYNC = Way("sync-ps", WAY.jobs, {"way": "sync"})


def shared(fleet: Fleet, user: Desk, way: Way = WAY, **more: Any) -> Scene:
    scene = stand_in(fleet, user, way, dirs={"output": str(fleet.shared / user.name)}, grace="2s", **more)
    user.dtctl("up", timeout_s=120)
    eventually(scene.steps, 60, "steps")
    return scene


def log_of(host: FleetHost, task: str) -> Path:
    """The log of the task's only attempt there, in any run."""
    (found,) = host.home.glob(f".dtctl/runs/*/{host.name}/tasks/{task.replace(':', '-')}/attempt-1/log")
    return found


def states(host: FleetHost, program: str) -> list[str]:
    """The states of its processes that match, as ps shows them."""
    lines = host.exec("ps", "-e", "-o", "state=,args=", root=True).splitlines()
    return [line[0] for line in lines if program in line and "trainer" in line and "dtctl" not in line.split()[1]]


@pytest.mark.parametrize("task", ["worker:0", "worker:1"])
def test_replaced_task_never_acts_beside_its_successor(fleet: Fleet, user: Desk, task: str) -> None:
    scene = shared(fleet, user)
    old, (job, _, index) = scene.host(task), task.partition(":")
    program = f"--job_name={job} --task_index={index}"
    log = log_of(old, task)
    fleet.cut(old)
    time.sleep(CUT_S)
    began = time.monotonic()
    user.dtctl("replace", old.name, "gpu-5", "--yes", timeout_s=180)
    print(f"replace took {time.monotonic() - began:.0f} s")
    assert set(states(old, program)) <= {"T"}, "it is held"
    before, size = log.stat().st_mtime, log.stat().st_size
    fleet.heal(old)
    eventually(lambda: not states(old, "--job_name="), 60, "the end of what was cut off")
    assert (log.stat().st_mtime, log.stat().st_size) == (before, size), "it has neither trained nor saved"
    user.dtctl("down", "--yes")


def acts(fleet: Fleet, user: Desk, host: FleetHost) -> list[str]:
    """What the lead has done for the whole run on this host: each save."""
    lines = (fleet.shared / user.name / "acts").read_text().splitlines()
    return [line for line in lines if line.split()[1] == "worker:0" and f" {host.name}-" in line]


@pytest.mark.parametrize("way", [WAY, SYNC], ids=lambda way: way.strategy)
@pytest.mark.parametrize(
    ("cut_s", "kills"), [(8.0, False), (36.0, False), (8.0, True)], ids=["running", "held", "its agent is killed"]
)
def test_replaced_lead_that_is_back_neither_trains_nor_saves(
    fleet: Fleet, user: Desk, way: Way, cut_s: float, *, kills: bool
) -> None:
    """`cut_s`: for how long it is cut off when it is replaced. `kills`: its agent, after that."""
    scene = shared(fleet, user, way)
    lead = scene.host("worker:0")
    eventually(lambda: acts(fleet, user, lead), 60, "a save of the lead")
    log = log_of(lead, "worker:0")
    fleet.cut(lead)
    time.sleep(cut_s)
    began = time.monotonic()
    user.dtctl("replace", lead.name, "gpu-5", "--yes", timeout_s=180)
    print(f"replace took {time.monotonic() - began:.0f} s")
    if kills:
        faults.send(lead, scene.agent(lead))
    eventually(lambda: acts(fleet, user, fleet["gpu-5"]), 60, "a save of the new lead")
    assert set(states(lead, "--job_name=worker --task_index=0")) <= {"T"}, "it is held"
    before, saved = (log.stat().st_mtime, log.stat().st_size), acts(fleet, user, lead)
    fleet.heal(lead)
    healed = time.monotonic()
    eventually(lambda: not states(lead, "--job_name="), 60, "the end of the old lead")
    print(f"the old lead ended {time.monotonic() - healed:.1f} s after the link was back")
    assert acts(fleet, user, lead) == saved, "it has not saved"
    assert (log.stat().st_mtime, log.stat().st_size) == before, "it has not trained"
    number = len(acts(fleet, user, fleet["gpu-5"]))
    eventually(lambda: len(acts(fleet, user, fleet["gpu-5"])) > number, 60, "another save of the new lead")
    user.dtctl("down", "--yes")


def takes_down(user: Desk, without: FleetHost) -> None:
    done = user.run("down", "--yes", "--grace", "1s", timeout_s=180)
    assert done.returncode == 7, done.stdout + done.stderr
    assert f"ends the tasks on {without.name} if it returns within a day" in done.stderr


def returns(fleet: Fleet, host: FleetHost) -> None:
    """The host comes back after a `down` that has not reached it: nothing of the run is left there."""
    assert states(host, "--job_name="), "its tasks still exist"
    fleet.heal(host)
    eventually(lambda: not states(host, "--job_name="), 90, "the end of its tasks")
    eventually(lambda: not host.processes(), 60, "the end of its agent")
    assert list(host.home.glob(".dtctl/runs/*/*")) == []
    eventually(lambda: not fleet.busy(), 120, "the end of what waited for it")


def test_down_after_a_replacement_waits_for_the_host_that_was_replaced(fleet: Fleet, user: Desk) -> None:
    scene = shared(fleet, user)
    old = scene.host("worker:0")
    fleet.cut(old)
    user.dtctl("replace", old.name, "gpu-5", "--yes", timeout_s=180)
    takes_down(user, old)
    returns(fleet, old)
    user.dtctl("down", "--yes")


def test_down_without_the_coordinators_host_waits_for_it(fleet: Fleet, user: Desk) -> None:
    scene = shared(fleet, user)
    old = scene.coordinator()
    fleet.cut(old)
    takes_down(user, old)
    returns(fleet, old)
    user.dtctl("down", "--yes")
    user.dtctl("up", timeout_s=120)
    user.dtctl("down", "--yes", "--grace", "1s")
