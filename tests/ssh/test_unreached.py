"""A host that cannot be used for a start: all that a user may type then has the same cause and the same remedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.desk import Desk, cluster_text, desk
from tests.hosts import sandbox
from tests.hosts.sshd import SSHD, Sshd

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (Debian: openssh-server)")

CLUSTER = cluster_text(
    jobs="{worker: {hosts: [gpu-1, gpu-2]}}", trainer="command: [python, stand_in.py], dialect: none"
)
HOSTS = "ssh: {{client: {client}}}\nhosts: {{gpu-1: , gpu-2: }}"


@pytest.fixture(params=["fabric", "openssh"])
def user(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Desk]:
    with desk(tmp_path / "home", client=request.param) as made:
        yield made


def configure(user: Desk, reached: Sshd, other: Sshd) -> None:
    user.write_ssh_config(reached.ssh_config_text("gpu-1") + other.ssh_config_text("gpu-2"))
    user.write_cluster(CLUSTER, hosts=HOSTS.format(client=user.client))


def joined(text: str) -> str:
    """Without the line breaks of a narrow terminal."""
    return " ".join(text.split())


def check_agreement(user: Desk, cause: str, remedy: str) -> None:
    up = user.run("up")
    assert up.returncode == 4, up.stderr
    assert joined(up.stderr).count(cause) == 1, up.stderr
    assert remedy in joined(up.stderr)
    checked = user.run("check")
    assert checked.returncode != 0
    shown = {command: user.run(command) for command in ("status", "diagnose", "wait")}
    assert {command: done.returncode for command, done in shown.items()} == {"status": 0, "diagnose": 0, "wait": 1}
    for command, done in shown.items():
        text = joined(f"{done.stdout} {done.stderr}")
        assert f"no task was started: {cause}" in text, text
        assert text.count(remedy) == 1, text
        assert "error:" not in text, text
        assert command == "diagnose" or f"nothing was started: {cause}" in text, text
    assert cause in joined(checked.stderr)
    assert remedy in joined(checked.stderr)
    [run] = json.loads(user.dtctl("runs", "-o", "json", code=None))["runs"]
    assert (run["result"], run["reason"]) == ("Failed", f"nothing was started: {cause}")


def test_every_command_agrees_on_unknown_host_keys_and_trust_mends_them(user: Desk) -> None:
    with Sshd(trusted=False) as server:
        configure(user, server, server)
        check_agreement(user, "gpu-[1-2]: the host key is not known", "dtctl trust")
        checked = user.run("check")
        assert checked.stdout == "", "what was not asked is not judged"
        assert "survives" not in checked.stderr
        user.dtctl("trust", "--yes")
        user.dtctl("up")
        user.dtctl("down", "--yes")


def test_where_ssh_keeps_no_host_keys_the_first_remedy_names_a_file_for_them(user: Desk) -> None:
    with Sshd() as server:
        configure(user, server, server)
        config = user.home / ".ssh" / "config"
        config.write_text(
            config.read_text().replace(f"UserKnownHostsFile {server.known_hosts}", "UserKnownHostsFile /dev/null")
        )
        remedy = "ssh: {known_hosts: ~/.ssh/known_hosts}"
        for command in (("up",), ("check",), ("trust", "--yes")):
            done = user.run(*command)
            assert done.returncode == 4
            assert f"hint: {remedy}" in joined(done.stderr)
        file = user.project / "cluster.yaml"
        file.write_text(file.read_text().replace("ssh: {", "ssh: {known_hosts: ~/.ssh/known_hosts, "))
        user.dtctl("trust", "--yes")
        user.dtctl("push")


def test_every_command_agrees_on_a_host_without_python(user: Desk) -> None:
    if reason := sandbox.missing():
        pytest.skip(f"users cannot be made: {reason}")
    with Sshd() as server, Sshd(options={"SetEnv": "PATH=/nowhere"}) as bare:
        configure(user, server, bare)
        check_agreement(user, "gpu-2 has no python3", "dtctl ssh gpu-2 'echo $PATH'")
        assert user.run("ssh", "gpu-2", "echo $PATH").stdout == "/nowhere\n", "as the remedy says"
