"""Runs on separate hosts, with a program that behaves as a trainer does: faults of hosts and of controllers."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts.fleet import Fleet
from tests.waiting import eventually, read_until

pytestmark = pytest.mark.fleet

COUNT = 4
"""Of the fleet's five hosts."""

HOSTS = f"hosts:\n  gpu-[1-{COUNT}]:\n"
CLUSTER = cluster_text(jobs='{ps: {hosts: "gpu-[1-2]"}, worker: {hosts: "gpu-[1-4]"}}')


def write(user: Desk, **args: object) -> Path:
    return user.write_cluster(CLUSTER, hosts=HOSTS, **args)


def left(fleet: Fleet) -> dict[str, list[str]]:
    """What runs on the hosts as their user, by host."""
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


def test_nothing_a_user_wrote_is_on_a_remote_command_line(user: Desk, fleet: Fleet) -> None:
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


HANGS_AT_ITS_START = """\
import json, os, socket, time
if os.environ["DTCTL_TASK"] == "worker:1" and os.environ["DTCTL_ATTEMPT"] == "1":
    time.sleep(1000)
place = json.loads(os.environ["TF_CONFIG"])
addresses = [address.split(":") for address in place["cluster"]["worker"]]
first, own = [(host, int(port)) for host, port in (addresses[0], addresses[place["task"]["index"]])]
with socket.create_server(("", own[1])) as server:
    if place["task"]["index"] == 0:
        server.accept()
    while place["task"]["index"] == 1 and socket.socket().connect_ex(first):
        time.sleep(0.1)
    for step in range(10000):
        print("step", step, flush=True)
        time.sleep(0.1)
"""

COLLECTIVE = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: "gpu-[1-2]"}}}}
strategy: mirrored
trainer: {{command: [python, train.py], dialect: tf_config}}
recovery: {{backoff: 100ms..200ms}}
start_timeout: 12s
grace: 2s
"""


def test_a_collective_that_hangs_at_its_very_first_start_is_restarted_once(user: Desk, fleet: Fleet) -> None:
    """worker:1 hangs before it listens, and worker:0 waits for it: neither does anything."""
    (user.project / "train.py").write_text(HANGS_AT_ITS_START)
    user.write_cluster(COLLECTIVE, hosts=HOSTS)
    user.dtctl("up")
    (file,) = fleet["gpu-1"].home.glob(".dtctl/runs/*/gpu-1/state.json")  # questions over SSH would be traffic
    eventually(lambda: json.loads(file.read_text())["tasks"]["worker:0"]["step"], what="the restart, and steps")
    assert {task["attempt"] for task in user.status()["tasks"]} == {2}
    nothing_done = r"worker:0: no task has reported a step since the start, and all have been idle for 1\d s at "
    assert re.search(nothing_done + ".*; restarted with it: worker:1; ", user.dtctl("status"))
