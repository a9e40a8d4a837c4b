"""Hosts that crash and boot: their agents restart, without any request."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.desk import Desk
from tests.fleet.test_run import write
from tests.hosts import faults
from tests.hosts.fleet import CRON, Fleet, FleetHost
from tests.nights import at_night
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.skipif(CRON is None, reason="no cron on this machine")]

BACK_S = 60.0


def entry(host: FleetHost, task: str) -> dict[str, Any]:
    """The task in the state file on the host."""
    (path,) = host.home.glob(f".dtctl/runs/*/{host.name}/state.json")
    found: dict[str, Any] = json.loads(path.read_text())["tasks"][task]
    return found


def crontab(host: FleetHost) -> str:
    try:
        return host.exec("sh", "-c", "crontab -l 2>/dev/null")
    except subprocess.CalledProcessError:
        return ""


def test_a_crashed_host_restarts_its_tasks_at_boot(user: Desk, fleet: Fleet) -> None:
    write(user)
    host = fleet["gpu-4"]
    user.dtctl("up")
    boot_ids: set[str] = set()
    for attempt in (1, 2):
        running(host, attempt)
        boot_ids.add((host.directory / "boot_id").read_text())
        fleet.crash(host)
        fleet.boot(host)
    running(host, 3)
    boot_ids.add((host.directory / "boot_id").read_text())
    assert len(boot_ids) == 3
    assert entry(host, "worker:3")["history"][0]["code"] is None
    assert user.task("worker:3")["state"] == "running"


def test_a_host_rebooted_while_drained_starts_its_tasks_at_undrain(user: Desk, fleet: Fleet) -> None:
    write(user)
    host = fleet["gpu-4"]
    user.dtctl("up")
    running(host, 1)
    done = user.run("drain", "gpu-4")
    assert done.stdout == "gpu-4 is drained: 1 task stopped, 0 left\n"
    assert "pauses" not in done.stderr, "workers of async-ps train alone"
    fleet.crash(host)
    assert user.task("worker:3")["state"] == "pending"
    fleet.boot(host)

    def is_back() -> bool:
        hosts = {one["host"]: one for one in user.status()["hosts"]}
        return bool(hosts["gpu-4"]["connected"] and hosts["gpu-4"]["drained"])

    eventually(is_back, BACK_S, "the agent to connect")
    assert "worker:3: held, gpu-4 is drained by" in user.run("up").stderr
    assert entry(host, "worker:3")["attempt"] == 1
    user.dtctl("undrain", "gpu-4")
    running(host, 2)
    assert user.outcome() == "Running"


def minute_passes(host: FleetHost) -> None:
    """Runs the jobs that cron runs every minute."""
    (line,) = [one for one in crontab(host).splitlines() if one.startswith("* * * * * ")]
    command = line.removeprefix("* * * * * ").replace("\\%", "%")
    host.exec("env", "-i", f"HOME={host.login.home_inside}", "PATH=/usr/bin:/bin", "sh", "-c", command)


@pytest.mark.parametrize("waits", at_night([False, True], but=[False]))
def test_cron_restarts_a_host_on_which_all_of_dtctl_was_killed(user: Desk, fleet: Fleet, waits: bool) -> None:
    write(user)
    host = fleet["gpu-4"]
    user.dtctl("up")
    running(host, 1)
    faults.kill_user(host)
    eventually(lambda: not host.processes(), what="the end of all")
    if not waits:
        minute_passes(host)
    eventually(lambda: entry(host, "worker:3")["attempt"] == 2, 150, "cron to bring it back")
    running(host, 2)


def running(host: FleetHost, attempt: int) -> None:
    def is_so() -> bool:
        found = entry(host, "worker:3")
        return (
            found["state"] == "running"
            and found["attempt"] == attempt
            and bool(host.exec("ps", "-p", str(found["pid"])))
        )

    eventually(_quietly(is_so), BACK_S, f"attempt {attempt} to run")


def _quietly(question: Callable[[], bool]) -> Callable[[], bool]:
    """False if ps finds no such process."""

    def ask() -> bool:
        try:
            return question()
        except subprocess.CalledProcessError:
            return False

    return ask


def test_down_leaves_the_crontab_as_it_was(user: Desk, fleet: Fleet) -> None:
    write(user)
    host = fleet["gpu-1"]
    mine = "# my own\n17 4 * * * echo 'a \\% sign' # dtctl-agent\n"
    host.exec("sh", "-c", 'printf %s "$0" | crontab -', mine)
    try:
        user.dtctl("up")
        added = crontab(host).replace(mine, "").splitlines()
        assert [line.partition(" /")[0] for line in added] == ["@reboot", "* * * * *"]
        user.dtctl("up")
        assert crontab(host).count("@reboot") == 1
        user.dtctl("stop")
        eventually(lambda: crontab(host) == mine, what="the agent that ends to take its line away")
        said = user.run("up").stderr
        assert "gpu-[1-4]: added crontab entries" in said
        assert crontab(host).count("@reboot") == 1
        user.dtctl("down", "--yes")
        assert crontab(host) == mine
        assert crontab(fleet["gpu-2"]) == ""
    finally:
        host.exec("crontab", "-r")


@pytest.mark.nightly
def test_a_run_with_reboot_never_does_not_restart_at_boot(user: Desk, fleet: Fleet) -> None:
    file = write(user)
    file.write_text(file.read_text().replace("recovery: {", "recovery: {reboot: never, "))
    user.dtctl("up")
    host = fleet["gpu-4"]
    assert crontab(host) == ""
    fleet.crash(host)
    fleet.boot(host)
    assert host.processes() == []
    assert entry(host, "worker:3")["attempt"] == 1
    user.dtctl("logs", "worker:3")  # which must query that host
    running(host, 2)
