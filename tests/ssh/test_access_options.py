"""The options -u, -i, -J and -F against a real sshd; and `dtctl ssh`, which is OpenSSH's own client."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text
from tests.hosts.sshd import SSHD, Sshd

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)")

CLUSTER = cluster_text(jobs="{worker: {hosts: [gpu]}}", trainer="command: [python, stand_in.py], dialect: none")


@pytest.fixture
def user(tmp_path: Path, sshd: Sshd, bastion: Sshd) -> Desk:
    """A desk whose cluster file has only the server's address and keys. Nothing is started."""
    made = Desk(tmp_path / "home")
    (made.project / "known_hosts").write_text(sshd.known_hosts_text() + bastion.known_hosts_text())
    text = f"ssh: {{known_hosts: known_hosts}}\nhosts: {{gpu: {sshd.address}:{sshd.port}}}"
    made.write_cluster(CLUSTER, hosts=text)
    return made


def login(server: Sshd) -> list[str]:
    return ["-u", server.user, "-i", str(server.key)]


def test_the_user_and_the_key_are_those_of_the_command_line(user: Desk, sshd: Sshd) -> None:
    refused = user.run("runs", "-u", "nobody-here", "-i", str(sshd.key))
    assert refused.returncode == 4
    assert "nobody-here" in refused.stderr
    before = sshd.logins()
    done = user.run("runs", *login(sshd))
    assert (done.returncode, done.stderr.splitlines()[0]) == (0, "no run yet")
    assert sshd.logins() == before + 1


def test_a_key_that_the_server_does_not_know_is_refused(user: Desk, sshd: Sshd, bastion: Sshd) -> None:
    done = user.run("runs", "-u", sshd.user, "-i", str(bastion.host_keys["ed25519"]))
    assert done.returncode == 4
    assert "publickey" in done.stderr


def test_the_gateway_of_the_command_line_is_used(user: Desk, sshd: Sshd, bastion: Sshd) -> None:
    key = bastion.key.read_bytes()
    before = bastion.logins(), sshd.logins()
    assert key == sshd.key.read_bytes(), "one key opens both"
    user.dtctl("runs", *login(sshd), "-J", f"{bastion.user}@{bastion.address}:{bastion.port}")
    assert (bastion.logins(), sshd.logins()) == (before[0] + 1, before[1] + 1)


def test_the_ssh_config_of_the_command_line_is_used(user: Desk, sshd: Sshd) -> None:
    user.write_cluster(CLUSTER, hosts="hosts: {gpu: testhost}")
    assert user.run("runs").returncode == 4
    assert user.run("runs", "-F", str(sshd.ssh_config)).returncode == 0
    missing = user.run("runs", "-F", str(user.home / "none"))
    assert missing.returncode != 0
    assert str(user.home / "none") in missing.stderr


def test_dtctl_ssh_uses_the_options_for_logins(user: Desk, sshd: Sshd, bastion: Sshd) -> None:
    script = "echo $USER; exit 9"
    assert user.dtctl("ssh", *login(sshd), "gpu", script, code=9) == f"{sshd.user}\n"
    before = bastion.logins()
    way = f"{bastion.user}@{bastion.address}:{bastion.port}"
    assert user.dtctl("ssh", *login(sshd), "-J", way, "worker:0", "echo there") == "there\n"
    assert bastion.logins() == before + 1
    user.write_cluster(CLUSTER, hosts="hosts: {gpu: testhost}")
    assert user.dtctl("ssh", "-F", str(sshd.ssh_config), "gpu", "echo there") == "there\n"
