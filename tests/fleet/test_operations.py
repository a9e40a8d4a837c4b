"""The controller's view and commands while hosts are unreachable: on separate hosts, over SSH."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text
from tests.hosts import faults
from tests.hosts.fleet import Fleet
from tests.nights import at_night
from tests.reasons import reason_of
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

HOSTS = "hosts:\n  gpu-[1-4]:\nssh: {connect_timeout: 3s}\nspares: [gpu-4]\n"
CLUSTER = cluster_text(jobs='{ps: {hosts: [gpu-1]}, worker: {hosts: "gpu-[2-3]"}}')


@pytest.fixture
def running(user: Desk, fleet: Fleet) -> Desk:
    """A run with the lead, and so the coordinator, on gpu-2."""
    user.write_cluster(CLUSTER, hosts=HOSTS)
    user.dtctl("up")
    return user


def test_a_run_is_stopped_without_its_coordinators_host(running: Desk, fleet: Fleet) -> None:
    fleet.crash(fleet["gpu-2"])
    try:
        assert running.run("stop").returncode == 7
        reported = running.run("status")
        assert ": Stopped" in reported.stdout
        assert "1 host unreachable: gpu-2" in reported.stdout
        problem = reported.stdout[reported.stdout.index("problem:") :]
        assert "the coordinator's host gpu-2 is unreachable" in problem
        assert "dtctl replace gpu-2" in problem
        done = running.run("wait", "--timeout", "60s")
        assert done.returncode != 124, done.stderr
    finally:
        fleet.boot(fleet["gpu-2"])
    eventually(lambda: running.states()["worker:0"] == "stopped", 60)


@pytest.mark.parametrize("gone", at_night([".dtctl", ".dtctl/runs/*/gpu-3"], but=[".dtctl"]))
def test_a_stop_ends_trainers_whose_files_are_gone(running: Desk, fleet: Fleet, gone: str) -> None:
    host = fleet["gpu-3"]
    host.exec("sh", "-c", f"pkill -9 -x 'dtctl-(guard|agent)'; rm -rf {gone}")
    assert any("stand_in.py" in line for line in host.processes())
    eventually(lambda: running.states()["worker:1"] == "lost", 60)
    for command in ("status", "stop"):
        done = running.run(command)
        assert done.returncode == 7, done.stdout + done.stderr
        assert "stand_in.py" in done.stderr
        assert "dtctl down" in done.stderr
        assert "no run" not in done.stderr
    done = running.run("down", "--yes")
    assert done.returncode == 0, done.stderr
    assert all(not host.processes() for host in fleet.hosts)


def test_the_host_of_the_coordinator_is_replaced_and_other_machines_find_the_run(running: Desk, fleet: Fleet) -> None:
    fleet.crash(fleet["gpu-2"])
    try:
        done = running.run("replace", "gpu-2", "--yes", timeout_s=150)
        assert done.returncode == 0, done.stderr
        assert "the lead moved with gpu-2" in done.stderr
        (running.home / ".local" / "state" / "dtctl" / "current").unlink()
        for path in (running.home / ".local" / "state" / "dtctl" / "runs").iterdir():
            path.unlink()
        assert running.task("worker:0")["host"] == "gpu-4"
        assert set(running.states().values()) == {"running"}
        assert running.dtctl("stop").startswith("3 tasks stopped, 0 left")
    finally:
        fleet.boot(fleet["gpu-2"])
    running.dtctl("down", "--yes", code=None)


@pytest.mark.parametrize("down", at_night([False, True], but=[False]), ids=["it goes on", "it was ended and removed"])
def test_a_replaced_lead_starts_nothing_when_its_host_is_back(running: Desk, fleet: Fleet, down: bool) -> None:
    first, host = running.status()["run"], fleet["gpu-2"]
    fleet.crash(host)
    try:
        assert running.run("replace", "gpu-2", "--yes", timeout_s=150).returncode == 0
        if down:
            running.dtctl("down", "--yes", code=None)
    finally:
        fleet.boot(host)
    directory = host.home / ".dtctl" / "runs" / first / "gpu-2"
    if down:  # no remaining host knows
        eventually(lambda: waits(directory), 60, "the old lead to wait for the others")
        time.sleep(5)
    else:
        eventually(lambda: not host.processes(), 90, "the old run to end on the host that is back")
    assert [path.name for path in (directory / "tasks" / "worker-0").glob("attempt-*")] == ["attempt-1"]
    if not down:
        assert set(running.states().values()) == {"running"}
    running.dtctl("down", "--yes", code=None)
    running.dtctl("gc", "--yes", code=None)


def test_up_restarts_a_lead_that_only_the_controller_reaches(user: Desk, fleet: Fleet) -> None:
    """The lead restarts after a cut from all others only on request: it may have been replaced."""
    user.write_cluster(CLUSTER, hosts=HOSTS.replace("spares: [gpu-4]\n", ""))
    user.dtctl("up")
    host = fleet["gpu-2"]
    (directory,) = host.home.glob(".dtctl/runs/*/gpu-2")
    with faults.drop_incoming_from(host, *(fleet[name] for name in ("gpu-1", "gpu-3", "gpu-4"))):
        eventually(lambda: not connected(directory), 60, "the others to be away")
        task = json.loads((directory / "state.json").read_text())["tasks"]["worker:0"]
        faults.send(host, task["pid"])
        eventually(lambda: waits(directory), 60, "the coordinator to wait for the others")
        assert "dtctl restart    starts it anyway" in user.dtctl("status")
        assert "is already running and has not changed" in user.run("up").stderr
        eventually(lambda: (directory / "tasks" / "worker-0" / "attempt-2").exists(), 60, "another attempt")


def connected(directory: Path) -> list[str]:
    """The other hosts that are connected to the coordinator there."""
    hosts = json.loads((directory / "cluster.json").read_text())["hosts"]
    return [name for name, known in hosts.items() if known["connected"] and name != directory.name]


def waits(directory: Path) -> bool:
    """Whether its coordinator has run since the restart, and waits for the others."""
    return "until the coordinator is connected to" in (
        reason_of(json.loads((directory / "cluster.json").read_text())["waits_for"])
    )
