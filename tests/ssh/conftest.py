"""A real sshd for the tests of a module, and a home of its own for the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.model import Host, SshSettings
from dtctl.transport import payload
from dtctl.transport.seam import Session, Transport, answering
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.kept import OpensshTransport
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts import sandbox
from tests.hosts.sshd import SSHD, Sshd
from tests.ssh.tiny_agent import OPENING

collect_ignore = [] if SSHD else ["."]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests' own ~, without keys and without an agent."""
    directory = tmp_path / "controller home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return directory


@pytest.fixture
def tiny_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "opening", lambda *_: OPENING)
    monkeypatch.setattr(payload, "agent_program", lambda: payload.AgentProgram(OPENING, "tiny"))


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


@pytest.fixture(scope="module")
def bastion() -> Iterator[Sshd]:
    """Another server, such as a jump host."""
    with Sshd() as server:
        yield server


@pytest.fixture
def needs_users() -> None:
    """Skips tests of login shells without the users for them."""
    if reason := sandbox.missing():
        pytest.skip(f"users cannot be made: {reason}")


Client = type[SshTransport] | type[OpensshTransport]


@pytest.fixture(params=[SshTransport, OpensshTransport], ids=["fabric", "openssh"])
def client(request: pytest.FixtureRequest) -> Client:
    """Both clients, for tests whose results must be the same."""
    made: Client = request.param
    return made


@pytest.fixture
def transport(sshd: Sshd, client: Client) -> SshTransport | OpensshTransport:
    """A transport with a configuration that knows the server as `testhost` and trusts its keys."""
    return client(ConfigFiles(sshd.ssh_config))


@pytest.fixture
def host() -> Host:
    return Host("gpu-a", SshSettings("testhost"))


@pytest.fixture
def session(tiny_agent: None, transport: Transport, host: Host) -> Iterator[Session]:
    made = answering(transport, host)
    yield made
    made.close()


def direct(server: Sshd, **settings: object) -> Host:
    """The server by its address, with all options in the host's own settings."""
    own = {"user": server.user, "port": server.port, "identity_file": str(server.key), **settings}
    own.setdefault("known_hosts", str(server.known_hosts))
    own.setdefault("project", str(Path.home()))
    return Host("gpu-a", SshSettings(server.address, **own))  # type: ignore[arg-type]
