"""A laptop with a key in ssh-agent, behind two jump hosts, works through the quick start with `client: openssh`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts.fleet import USER, Fleet
from tests.hosts.keys import ssh_agent
from tests.waiting import eventually

pytestmark = pytest.mark.fleet

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
    """`ssh` knows no other home than that of /etc/passwd, so that its file is named by -F."""

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
