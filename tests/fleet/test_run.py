"""Runs on separate hosts, with a program that behaves as a trainer does: faults of hosts and of controllers."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts.fleet import Fleet
from tests.waiting import read_until

pytestmark = pytest.mark.fleet

COUNT = 4
"""The number of the fleet's hosts."""

HOSTS = f"hosts:\n  gpu-[1-{COUNT}]:\n"
CLUSTER = cluster_text(jobs='{ps: {hosts: "gpu-[1-2]"}, worker: {hosts: "gpu-[1-4]"}}')


def write(user: Desk, **args: object) -> Path:
    return user.write_cluster(CLUSTER, hosts=HOSTS, **args)


def left(fleet: Fleet) -> dict[str, list[str]]:
    """The processes on the hosts as their user, by host."""
    return {host.name: found for host in fleet.hosts if (found := host.processes())}


def test_another_machine_with_the_file_sees_and_stops_the_same_run(user: Desk, fleet: Fleet, tmp_path: Path) -> None:
    write(user)
    user.dtctl("up")
    with desk(tmp_path / "other") as other:
        other.write_ssh_config(fleet.ssh_config.read_text())
        write(other)
        assert other.status()["run"] == user.status()["run"]
        assert "worker:3 step" in other.dtctl("logs", "worker:3")
        assert other.dtctl("stop") == "6 tasks stopped, 0 left\n"
    assert left(fleet) == {}


def test_logs_follow_through_a_cut_without_a_lost_or_doubled_line(user: Desk, fleet: Fleet) -> None:
    write(user, tick=0.05)
    user.dtctl("up")
    host = fleet["gpu-4"]
    with user.start("logs", "worker:3", "-f", "-n", "all") as following:
        lines = read_until(following.stdout, "^worker:3 step", times=20)
        host.exec("pkill", "-9", "-f", "^sshd: train", root=True)
        lines += read_until(following.stdout, "^worker:3 step", times=130)
        following.send_signal(signal.SIGINT)
    numbers = [int(line.split()[-1]) for line in lines if line.startswith("worker:3 step")]
    assert numbers == list(range(1, len(numbers) + 1))


def test_no_text_of_the_user_is_on_a_remote_command_line(user: Desk, fleet: Fleet) -> None:
    write(user)
    file = user.project / "cluster.yaml"
    file.write_text(file.read_text().replace("dialect: flags", "dialect: flags, env: {MARK: user-text-mark}"))
    seen: set[str] = set()
    with user.start("up") as starting:
        while starting.poll() is None:
            for host in fleet.hosts:
                seen.update(host.processes())
    assert starting.returncode == 0
    assert any("-ISc" in line for line in seen)
    assert not [line for line in seen if "user-text-mark" in line]
