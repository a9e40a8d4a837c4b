"""Hosts that are new in the cluster file join the live run as spares, and take the tasks of lost hosts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.fleet.test_run import left
from tests.hosts.fleet import Fleet
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

ENOUGH = "/home/train/enough"
JOBS = '{ps: {hosts: [gpu-1]}, worker: {hosts: "gpu-[2-3]"}}'
BEFORE = cluster_text(jobs=JOBS, recovery="{backoff: 100ms}")
AFTER = cluster_text(jobs=JOBS, recovery="{replace: 50s, backoff: 100ms}", spares="[gpu-4]")
SSH = "\nssh: {connect_timeout: 3s}\n"


def write(user: Desk, text: str, last: int) -> None:
    user.write_cluster(text, hosts=f"hosts:\n  gpu-[1-{last}]:{SSH}", until_file=ENOUGH)


def test_a_new_host_joins_as_a_spare_and_takes_the_task_of_a_lost_host(
    user: Desk, fleet: Fleet, tmp_path: Path
) -> None:
    write(user, BEFORE, 3)
    user.dtctl("up")
    run = user.status()["run"]
    before = {task["task"]: task["pid"] for task in user.status()["tasks"]}
    [key] = (user.home / ".local/state/dtctl/runs").glob("*.key")
    assert key.stat().st_mode & 0o777 == 0o600

    with desk(tmp_path / "colleague", elsewhere=lambda: False) as other:
        other.write_ssh_config(fleet.ssh_config.read_text())
        write(other, AFTER, 4)
        refused = other.run("up")
        assert refused.returncode != 0
        assert f"gpu-4 cannot join run {run} from this machine" in refused.stderr, refused.stderr
        assert "dtctl up --replace" in refused.stderr

    write(user, AFTER, 4)
    assert f"gpu-4 is new in the file: dtctl up    adds it to run {run}" in user.run("up", "--dry-run").stderr
    joined = json.loads(user.dtctl("up", "-o", "json"))
    assert (joined["run"], joined["unchanged"], joined["joinedSpares"]) == (run, True, ["gpu-4"])
    eventually(lambda: "spares: gpu-4 ready" in user.dtctl("status"), 60, "the new host to be a spare")
    assert {task["task"]: task["pid"] for task in user.status()["tasks"]} == before, "nobody was touched"
    assert "gpu-4 has joined the run" in user.dtctl("events")
    again = user.run("up")
    assert (again.returncode, "is already running and has not changed" in again.stderr) == (0, True), again.stderr
    assert "joined it" not in again.stderr

    fleet.crash(fleet["gpu-3"])
    try:
        eventually(lambda: user.states()["worker:1"] == "running" and "gpu-4 has taken" in user.dtctl("status"), 150)
        for name in ("gpu-1", "gpu-2", "gpu-4"):
            fleet[name].exec("touch", "enough")
        user.dtctl("wait", "--timeout", "90s")
        assert user.outcome() == "Succeeded"
        assert not key.exists()
    finally:
        fleet.boot(fleet["gpu-3"])
    eventually(lambda: left(fleet) == {}, 60)
