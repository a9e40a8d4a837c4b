"""A run that starts without a host, which joins when it is back, or never does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.fleet.test_run import left, write
from tests.hosts.fleet import USER, Fleet
from tests.hosts.keys import ssh_agent
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
        assert "dtctl up --allow-missing 1    continues without it" in refused.stderr
        begun = user.run("up", "--allow-missing", "1")
        assert begun.returncode == 0, begun.stderr
        assert "the run continues without gpu-4: worker:3 is not started" in begun.stderr
        run = user.status()["run"]
        assert user.states() == {
            **dict.fromkeys(("ps:0", "ps:1", "worker:0", "worker:1", "worker:2"), "running"),
            "worker:3": "pending",
        }
        assert "without gpu-4: dtctl up" in user.dtctl("status")
        assert "is not part of the run" in user.run("restart", "worker:3").stderr
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


CLUSTER = cluster_text(ssh="{client: openssh, keep: 1m}", jobs='{ps: {hosts: [gpu-3]}, worker: {hosts: "gpu-[3-4]"}}')


@pytest.fixture
def laptop(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    with ssh_agent(fleet.key) as agent, desk(tmp_path / "home", elsewhere=fleet.busy) as made:
        made.env["SSH_AUTH_SOCK"] = str(agent)
        names = "".join(f"Host {host.name}\n  HostName {host.address}\n" for host in fleet.hosts)
        jumps = f"Host gpu-3 gpu-4\n  ProxyJump {fleet.hosts[0].name},{fleet.hosts[1].name}\n"
        rest = f"Host *\n  User {USER}\n  UserKnownHostsFile {made.home}/known_hosts\n"
        (made.home / "config").write_text(names + jumps + rest)
        yield made
    eventually(lambda: not fleet.busy(), what="nothing to be left on any host")


def logins(fleet: Fleet) -> list[int]:
    logs = [(host.directory / "sshd.log").read_text(errors="replace") for host in fleet.hosts[:4]]
    return [log.count("Accepted publickey") for log in logs]


def test_quick_start_runs_with_one_login_for_each_host(laptop: Desk, fleet: Fleet) -> None:
    """`ssh` uses only the home in /etc/passwd, so its file is named with -F."""

    def dtctl(command: str, *words: str, code: int = 0) -> str:
        return laptop.dtctl(command, "-F", str(laptop.home / "config"), *words, code=code)

    before = logins(fleet)
    laptop.dtctl("init", "digits")
    laptop.write_cluster(CLUSTER, hosts='hosts: {"gpu-[3-4]": }', tick=0.1)
    assert "hint: dtctl trust" in laptop.run("check", "-F", str(laptop.home / "config")).stderr
    dtctl("trust", "--yes")
    dtctl("check")
    dtctl("up")
    assert "running" in dtctl("status")
    eventually(lambda: "worker:1 step" in dtctl("logs", "-n", "3", "worker:1"), what="its first steps")
    dtctl("stop")
    dtctl("down", "--yes")
    assert [now - then for then, now in zip(before, logins(fleet), strict=True)] == [1, 1, 1, 1]
