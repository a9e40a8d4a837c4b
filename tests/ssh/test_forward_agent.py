"""`forward_agent`: a host uses the user's ssh-agent only if the user's own configuration allows it, too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.errors import TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport.seam import answering
from dtctl.transport.ssh.config import ConfigFiles, last_gateway
from tests.desk import Desk, cluster_text, desk
from tests.hosts.keys import make_key, ssh_agent
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import Client
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("tiny_agent")


@pytest.fixture(autouse=True)
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user's agent, with a key for elsewhere."""
    with ssh_agent(make_key("login"), make_key("elsewhere")) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        yield


@pytest.fixture
def config(sshd: Sshd, tmp_path: Path) -> Path:
    """The server's configuration, which allows it to use the agent."""
    file = tmp_path / "ssh_config"
    file.write_text(f"Host testhost\n  ForwardAgent yes\n{sshd.ssh_config.read_text()}")
    return file


def keys_there(client: Client, config: Path, *, forward: bool) -> str:
    host = Host("gpu-a", SshSettings("testhost", forward_agent=forward))
    session = answering(client(ConfigFiles(config)), host)
    try:
        session.send({"type": "keys"})
        return str(session.receive().fields["keys"])
    finally:
        session.close()


def test_the_host_uses_the_agent_where_file_and_configuration_say_so(client: Client, config: Path) -> None:
    for _ in range(2):  # the second session of a kept connection, too
        assert "(ED25519)" in keys_there(client, config, forward=True)


def test_it_does_not_where_only_the_configuration_says_so(client: Client, config: Path) -> None:
    assert "(ED25519)" not in keys_there(client, config, forward=False)


def test_a_file_alone_gets_no_agent(client: Client, sshd: Sshd) -> None:
    """It may come from elsewhere, with hosts of somebody else."""
    with pytest.raises(TransportError, match="your SSH configuration does not allow it") as error:
        keys_there(client, sshd.ssh_config, forward=True)
    assert "ForwardAgent yes" in error.value.hint


def test_a_gateway_gets_no_agent() -> None:
    settings = SshSettings("gpu-a", jump="gate", forward_agent=True)
    assert not last_gateway(settings, "gate").forward_agent


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home") as made:
        made.env["SSH_AUTH_SOCK"] = os.environ["SSH_AUTH_SOCK"]
        yield made


@pytest.mark.parametrize("client", ["fabric", "openssh"])
def test_setup_and_exec_have_the_agent_and_trainers_do_not(user: Desk, client: str) -> None:
    with Sshd() as sshd:
        user.write_ssh_config(f"Host testhost\n  ForwardAgent yes\n{sshd.ssh_config_text()}")
        keys = sshd.home / "keys_of_setup"
        text = cluster_text(
            jobs="{worker: {hosts: [testhost]}}",
            trainer=f"command: [env], dialect: none, setup: 'ssh-add -l > {keys}'",
            recovery="{max_restarts: 0}",
        )
        ssh = f"ssh: {{forward_agent: true, client: {client}}}\n"
        user.write_cluster(text, hosts=f"{ssh}hosts: {{testhost: }}")
        user.dtctl("up", timeout_s=240)
        eventually(lambda: user.states() == {"worker:0": "succeeded"}, what="the trainer to end")
        assert "(ED25519)" in keys.read_text()
        assert "SSH_AUTH_SOCK" not in user.dtctl("logs")
        assert "(ED25519)" in user.dtctl("exec", "--", "ssh-add", "-l")
