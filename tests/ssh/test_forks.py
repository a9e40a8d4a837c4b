"""Fork servers: sessions over a kept connection without a command of the login shell."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.agent.requests import forkserver
from dtctl.model import Host
from dtctl.transport.seam import Message
from dtctl.transport.ssh import kept
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.kept import OpensshTransport
from dtctl.transport.ssh.openssh import control_path
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import direct
from tests.waiting import eventually

SERVER = "pkill -{signal} -x dtctl-sessions"


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home.parent / "c"))
    with Sshd() as made:
        yield made


def ask(host: Host, kind: str, **fields: object) -> Message:
    """The result of a request in a session of its own, as of a dtctl command."""
    session = OpensshTransport(ConfigFiles()).open(host)
    try:
        session.send({"type": kind, "cluster": "c", "host": "gpu-a", "run": None, **fields})
        answer = session.receive(30)
        while answer.type != "result":
            answer = session.receive(30)
        return answer
    finally:
        session.close()


def exec_code(host: Host, command: str) -> int:
    return int(ask(host, "exec", task=None, cwd="home", argv=["/bin/sh", "-c", command])["exit_code"])


def await_server(server: Sshd, host: Host) -> None:
    """Waits until the fork server that the first session leaves behind answers."""

    def is_there() -> bool:
        before = server.sessions()
        return exec_code(host, "true") == 0 and server.sessions() == before

    eventually(is_there, what="a fork server")


def test_sessions_after_the_first_start_no_command(server: Sshd) -> None:
    host = direct(server)
    await_server(server, host)
    before = server.sessions()
    assert [exec_code(host, f"exit {code}") for code in (0, 3, 5)] == [0, 3, 5]
    assert exec_code(host, 'grep -q \'"dtctl","exec"\' /proc/$PPID/cmdline') == 0  # sockets of other sessions
    assert server.sessions() == before


def test_only_its_user_reaches_the_server(server: Sshd) -> None:
    host = direct(server)
    await_server(server, host)
    modes = "test $(stat -c %a .dtctl/sessions .dtctl/sessions/*[0-9a-f] | tr '\\n' ' ' | tr -d ' ') = 700600"
    assert exec_code(host, modes) == 0
    sockets = [path for path in control_path(host.reach, ConfigFiles()).parent.iterdir() if path.is_socket()]  # type: ignore[arg-type]
    assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600}


@pytest.mark.parametrize(
    "change",
    ["echo 'export NEW=1' >> .profile", SERVER.format(signal="KILL"), SERVER.format(signal="TERM"), "rm -r .dtctl"],
    ids=["a file of the login is new", "killed", "terminated", "files removed"],
)
def test_session_logs_in_if_the_fork_server_is_gone(change: str, server: Sshd) -> None:
    host = direct(server)
    await_server(server, host)
    exec_code(host, change)
    before = server.sessions()
    assert exec_code(host, "exit 3") == 3
    assert server.sessions() == before + 1
    await_server(server, host)


def test_session_logs_in_if_the_fork_server_does_not_answer(server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    host = direct(server)
    await_server(server, host)
    monkeypatch.setattr(kept, "ANSWER_S", 0.5)
    exec_code(host, SERVER.format(signal="STOP"))
    before = server.logins()
    assert exec_code(host, "exit 3") == 3
    assert server.logins() == before + 1


def test_session_logs_in_if_the_host_forwards_no_socket() -> None:
    with Sshd(options={"AllowStreamLocalForwarding": "no"}) as server:
        host = direct(server)
        exec_code(host, "true")
        before = server.sessions()
        assert [exec_code(host, "exit 3") for _ in range(3)] == [3, 3, 3]
        assert server.sessions() == before + 3
        assert exec_code(host, "test $(pgrep -cx dtctl-sessions) = 1") == 0


def test_unused_server_ends_and_removes_its_files(server: Sshd) -> None:
    await_server(server, direct(server, keep_s=1.0))
    eventually(lambda: server.processes() == [], what="the end of the fork server")
    assert not list((server.home / ".dtctl/sessions").iterdir())


def test_down_leaves_no_server(server: Sshd) -> None:
    host = direct(server)
    await_server(server, host)
    ask(host, "down")
    eventually(lambda: server.processes() == [], what="the end of the fork server")
    assert exec_code(host, "exit 3") == 3


STRANGER = """
import os, socket, sys
os.chdir(sys.argv[1])
os.setgid(65534); os.setgroups([]); os.setuid(65534)
for name in os.listdir("."):
    if not name.endswith(".lock"):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(60)
            stranger.connect(name)
            try:
                stranger.sendall(b"x" * 100)
                print(repr(stranger.recv(100)))
            except ConnectionError:
                print(repr(b""))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_connection_of_another_user_is_refused(server: Sshd) -> None:
    """Even where all modes are open: another user of the host connects, and is hung up on unheard."""
    host = direct(server)
    await_server(server, host)
    eventually(lambda: server.processes() == ["dtctl-sessions"])  # the session that has started it has ended
    directory, before = server.home / ".dtctl/sessions", server.processes()
    for path in (directory, *directory.iterdir()):
        path.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(directory)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "b''\n"
    assert server.processes() == before
    assert exec_code(host, "exit 3") == 3


def test_server_survives_unknown_module_names() -> None:
    forkserver._import(["no.such.module", "json.no", "json"])


LEAVES_A_SERVER = """
import socket, sys, time
from dtctl.agent.requests import forkserver

def converse(reader, writer):
    writer.write(b"imported" if "wave" in sys.modules else b"absent__")
    writer.flush()

path, report = forkserver.start(sys.argv[1], "s", 5, converse)
import wave
report()
for _ in range(100):
    time.sleep(0.05)
    with socket.socket(socket.AF_UNIX) as fork:
        try:
            fork.connect(path)
        except OSError:
            continue
        fork.sendall(b"0\\n\\n")
        if fork.makefile("rb").read().endswith(b"imported"):
            sys.exit()
sys.exit("no fork has what the session imported")
"""


def test_forks_have_the_modules_of_the_session_that_left_their_server(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVES_A_SERVER, str(tmp_path)], check=True, timeout=60)
