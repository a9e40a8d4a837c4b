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


def collective(count: int) -> str:
    return cluster_text(
        jobs=f'{{worker: {{hosts: "gpu-[1-{count}]"}}}}',
        trainer="command: [python, stand_in.py], dialect: pytorch",
        recovery="{backoff: 100ms}",
    )


def world_size(user: Desk, fleet: Fleet) -> set[str]:
    """What the trainers were started with, on all of their hosts."""
    found = set()
    for task in user.status()["tasks"]:
        if task["pid"]:
            words = fleet[task["host"]].exec("cat", f"/proc/{task['pid']}/environ").split("\0")
            found |= {word for word in words if word.startswith("WORLD_SIZE=")}
    return found


def test_scale_uses_a_host_that_has_joined(user: Desk, fleet: Fleet) -> None:
    write(user, collective(3), 3)
    user.dtctl("up")
    before = {task["task"]: task["pid"] for task in user.status()["tasks"]}
    early = user.run("scale", "worker=4")
    assert (early.returncode, "has places for 3 tasks of worker" in early.stderr) == (2, True), early.stderr
    assert "dtctl up    lets hosts that are new in the file join it" in early.stderr

    write(user, collective(4), 4)
    joined = user.run("up")
    assert joined.returncode == 0, joined.stderr
    assert "worker:3 waits there" in joined.stderr
    assert "dtctl scale worker=4    starts it" in joined.stderr
    eventually(lambda: user.states().get("worker:3") == "pending", 60, "its task to be there")
    pids = {task["task"]: task["pid"] for task in user.status()["tasks"]}
    assert {task: pids[task] for task in before} == before, "nobody was touched"

    user.dtctl("scale", "worker=4")
    eventually(lambda: set(user.states().values()) == {"running"}, 60, "all four to train")
    assert world_size(user, fleet) == {"WORLD_SIZE=4"}
    again = user.run("up")
    assert (again.returncode, "is already running and has not changed" in again.stderr) == (0, True), again.stderr
    user.dtctl("drain", "gpu-4")
    assert user.states()["worker:3"] == "pending"
    user.dtctl("undrain", "gpu-4")
    eventually(lambda: set(user.states().values()) == {"running"}, 60, "all four to train again")
    user.dtctl("scale", "worker=3")
    eventually(lambda: [*user.states().values()] == ["running"] * 3 + ["pending"], 60, "three to train")
    assert world_size(user, fleet) == {"WORLD_SIZE=3"}
    user.dtctl("stop")
    eventually(lambda: left(fleet) == {}, 60)
