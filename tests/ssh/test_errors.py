"""Real failures before the agent's first message, and their error messages."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from dtctl.errors import ExitCode, TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport import payload, stream
from dtctl.transport.seam import answering
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts.ports import free_port, talking_port
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import direct


def failure(host: Host) -> TransportError:
    with pytest.raises(TransportError) as caught:
        answering(SshTransport(), host)
    assert caught.value.exit_code == ExitCode.UNREACHABLE
    return caught.value


def at(port: int, address: str = "127.0.0.1", timeout_s: float = 5.0) -> Host:
    return Host("gpu-a", SshSettings(address, port=port, connect_timeout_s=timeout_s))


def test_a_name_that_does_not_resolve_is_reported() -> None:
    error = failure(at(22, "gpu-a.invalid"))
    assert error.summary == "cannot find gpu-a: the name 'gpu-a.invalid' does not resolve"
    assert "`ssh:` of gpu-a" in error.hint


@pytest.mark.parametrize("name", ["x" * 80, "a..b"])
def test_an_impossible_host_name_is_reported(name: str) -> None:
    assert failure(at(22, name)).summary == f"cannot find gpu-a: the name {name!r} does not resolve"


def test_a_port_that_refuses_connections_is_reported() -> None:
    port = free_port()
    error = failure(at(port))
    assert error.summary == f"gpu-a (127.0.0.1:{port}) refuses connections"
    assert f"is {port} its port?" in error.hint


def test_a_host_that_does_not_answer_is_reported() -> None:
    # A full backlog drops connections, as a firewall does.
    with socket.socket() as listener, socket.socket() as filler:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        filler.connect(("127.0.0.1", port))
        error = failure(at(port, timeout_s=1.0))
    assert error.summary == f"gpu-a (127.0.0.1:{port}) does not answer within 1 s"


def test_a_port_without_an_ssh_server_is_reported() -> None:
    with talking_port(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        error = failure(at(port, timeout_s=1.0))
    assert f"gpu-a (127.0.0.1:{port}) closes the connection before it greets" in error.summary
    assert "really the port of an SSH server" in error.hint


@pytest.mark.usefixtures("needs_users")
class TestTheOtherSide:
    """Failures of the host's account and of its login shell."""

    @pytest.mark.parametrize(
        ("settings", "summary", "detail", "hint"),
        [
            (
                {"shells": {"train": "/usr/sbin/nologin"}},
                "the agent does not start on gpu-a",
                "it ended with exit code 1\nThis account is currently not available",
                "dtctl ssh gpu-a",
            ),
            ({"options": {"SetEnv": "PATH=/nowhere"}}, "gpu-a has no python3", "", "install Python 3.8 or later"),
            (
                {"options": {"ForceCommand": "internal-sftp"}},
                "the agent does not start on gpu-a",
                "",
                "dtctl ssh gpu-a",
            ),
        ],
        ids=["nologin", "no python3", "only sftp"],
    )
    def test_an_account_that_cannot_run_the_agent_is_reported(
        self, settings: dict[str, Any], summary: str, detail: str, hint: str
    ) -> None:
        with Sshd(**settings) as server:
            error = failure(direct(server))
        assert error.summary == summary
        assert detail in error.detail
        assert error.hint.startswith(hint)

    def test_a_python3_that_cannot_be_run_is_reported(self, tmp_path: Path) -> None:
        with Sshd() as server:
            broken = server.home / "bin"
            broken.mkdir()
            (broken / "python3").write_text("not a program")
            server.stop()
            server.options["SetEnv"] = "PATH=/home/train/bin"
            server.start()
            error = failure(direct(server))
        assert error.summary == "python3 on gpu-a cannot be run"

    @pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash", "/bin/csh", "/usr/bin/fish"])
    def test_any_login_shell_starts_the_agent(self, shell: str) -> None:
        if not Path(shell).exists():
            pytest.skip(f"{shell} not found")
        with Sshd(shells={"train": shell}) as server:
            session = answering(SshTransport(), direct(server))
            assert session.facts["user"] == "train"
            session.close()

    def test_output_of_a_bashrc_is_ignored(self) -> None:
        with Sshd() as server:
            (server.home / ".bashrc").write_text("echo Welcome; echo oops >&2; yes | head -c 100000\n")
            session = answering(SshTransport(), direct(server))
            assert session.facts["user"] == "train"
            session.close()

    def test_a_bashrc_that_ends_the_shell_is_quoted(self) -> None:
        with Sshd() as server:
            (server.home / ".bashrc").write_text("echo no entry today; exit 4\n")
            error = failure(direct(server))
        assert "exit code 4" in error.detail
        assert "no entry today" in error.detail

    @pytest.mark.parametrize("last", ["sleep 600", "exec cat >/dev/null", "exec fish", "fish -l"])
    def test_a_login_shell_that_never_runs_the_command_is_named(
        self, monkeypatch: pytest.MonkeyPatch, last: str
    ) -> None:
        if "fish" in last and shutil.which("fish") is None:
            pytest.skip("fish not found")
        monkeypatch.setattr(stream, "SHELL_TIMEOUT_S", 2.0)
        with Sshd() as server:
            (server.home / ".bashrc").write_text(f"echo password please; {last}\n")
            error = failure(direct(server))
        assert error.summary == "the login shell on gpu-a has not run a command within 2 s"
        assert error.detail == "password please"
        assert "case $- in *i*)" in error.hint

    def test_a_slow_login_shell_is_awaited(self) -> None:
        with Sshd() as server:
            (server.home / ".bashrc").write_text("sleep 3\n")
            session = answering(SshTransport(), direct(server))
            assert session.facts["user"] == "train"
            session.close()

    def test_a_python_that_never_answers_is_told_from_a_shell_that_waits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream, "GREETING_TIMEOUT_S", 2.0)
        with Sshd() as server:
            (server.home / "bin").mkdir()
            (server.home / "bin" / "python3").write_text("#!/bin/sh\nsleep 600\n")
            (server.home / "bin" / "python3").chmod(0o755)
            (server.home / ".bashrc").write_text("PATH=$HOME/bin:$PATH\n")
            error = failure(direct(server))
        assert error.summary == "the agent on gpu-a did not answer within 2 s"


@pytest.mark.parametrize(
    ("options", "summary"),
    [
        ({"Ciphers": "aes128-cbc"}, "cannot agree with gpu-a"),
        ({"MaxSessions": "0"}, "accepts the login, but opens no session"),
    ],
)
def test_a_server_without_common_ciphers_or_sessions_is_reported(options: dict[str, str], summary: str) -> None:
    with Sshd(options=options) as server:
        assert summary in failure(direct(server)).summary


def test_an_agent_of_another_protocol_is_refused(monkeypatch: pytest.MonkeyPatch, sshd: Sshd) -> None:
    program = b'print("\\x1e" + \'{"type":"greeting","protocol":99}\')\n'
    monkeypatch.setattr(payload, "opening", lambda: b"%d\n" % len(program) + program)
    assert failure(direct(sshd)).summary == "the agent on gpu-a speaks another protocol"


def test_login_is_repeated_if_the_server_drops_unfinished_logins(tiny_agent: None) -> None:
    from dtctl.transport.fanout import fan_out

    with Sshd(options={"MaxStartups": "1"}) as server:
        transport, host = SshTransport(), direct(server)
        outcomes = fan_out(range(8), lambda _: answering(transport, host).close(), name=str)
    assert outcomes.errors == {}
