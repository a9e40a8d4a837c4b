"""`ssh: {client: openssh}`: the user's own `ssh` logs in, keeps the connection, and replaces a dead one."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dtctl.errors import TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport.connect import Transports
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import answering
from dtctl.transport.ssh import control, kept
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.kept import OpensshTransport
from dtctl.transport.ssh.openssh import control_path, ssh_command
from tests.hosts.keys import make_key
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import direct
from tests.waiting import eventually


def log_in(host: Host, config: Path | None = None) -> None:
    """Logs in as another command of dtctl does."""
    answering(OpensshTransport(ConfigFiles(config)), host).close()


def refusal(host: Host, config: Path | None = None) -> TransportError:
    with pytest.raises(TransportError) as caught:
        log_in(host, config)
    return caught.value


def master(host: Host, config: Path | None = None) -> int:
    """The pid of the `ssh` that keeps the connection."""
    path = control_path(host.reach, ConfigFiles(config))  # type: ignore[arg-type]
    completed = subprocess.run(["ssh", "-O", "check", "-S", str(path), "any"], capture_output=True, text=True)
    return int(completed.stderr.partition("pid=")[2].partition(")")[0])


def test_commands_share_one_login(sshd: Sshd) -> None:
    before = sshd.logins()
    for _ in range(3):
        log_in(direct(sshd))
    assert sshd.logins() == before + 1


def test_nothing_of_fabric_is_imported(sshd: Sshd, home: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from dtctl.model import Host, SshSettings\n"
        "from dtctl.transport.connect import Transports; from dtctl.transport.seam import answering\n"
        "host, way = Host('a', SshSettings('testhost', client='openssh')), Transports(ssh_config=Path(sys.argv[1]))\n"
        "answering(way, host).close(); [one.scan() for one in way.stations(host)]\n"
        "print(way.hostname(host.reach), {'paramiko', 'fabric', 'cryptography'} & set(sys.modules))"
    )
    command = [sys.executable, "-c", script, str(sshd.ssh_config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [sshd.address, "set()"]


def test_sockets_are_in_a_private_directory(sshd: Sshd) -> None:
    log_in(direct(sshd))
    path = control_path(direct(sshd).reach, ConfigFiles())  # type: ignore[arg-type]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(os.fsencode(path)) < 80


def test_unused_connection_ends(sshd: Sshd) -> None:
    host = direct(sshd, keep_s=4.0)  # on a busy machine a session takes a second to open
    log_in(host)
    pid = master(host)
    eventually(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the connection")
    log_in(host)


def test_connection_that_was_killed_is_replaced(sshd: Sshd) -> None:
    host = direct(sshd)
    log_in(host)
    os.kill(master(host), signal.SIGKILL)
    log_in(host)


@pytest.mark.parametrize("frozen", ["host", "ssh"])
def test_connection_that_does_not_answer_is_replaced(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the laptop slept: the `ssh` lives, and does not know that its connection is dead."""
    monkeypatch.setattr(kept, "ANSWER_S", 0.5)
    monkeypatch.setattr(control, "HELLO_S", 0.5)
    with Sshd() as server:
        host = direct(server)
        log_in(host)
        pids = [master(host)] if frozen == "ssh" else _logins_of(server)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            log_in(host)
            log_in(host)
            assert server.logins() == 2
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


def test_a_kept_connection_that_is_dead_takes_no_more_than_the_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "ANSWER_S", 60.0)
    with Sshd() as server:
        host = direct(server, connect_timeout_s=2.0)
        log_in(host)
        pids = [*_logins_of(server), server.init]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(TransportError, match="cannot log in"):
                log_in(host)
            assert time.monotonic() - begun < 30.0
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)


def _logins_of(server: Sshd) -> list[int]:
    """The server's processes for logged-in users."""
    found, below = [], [server.init]
    while below:
        pid = below.pop()
        completed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
        below += map(int, completed.stdout.split())
        if Path(f"/proc/{pid}/cmdline").read_text().startswith(f"sshd: {server.user}"):
            found.append(pid)
    return found


def test_ssh_accepts_keys_pinned_by_trust(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    known = home / "known_hosts.own"
    jump = f"{bastion.user}@{bastion.address}:{bastion.port}"
    host = direct(sshd, known_hosts=str(known), jump=jump, client="openssh")
    before = sshd.logins()
    for station in Transports().stations(host):
        assert station.keys.pinned() == []
        keys = station.scan()
        assert {key.type for key in keys} == {"ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"}
        assert station.pin(keys) == known
    assert sshd.logins() == before
    log_in(host)


def test_hosts_share_one_login_to_their_jump_host(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    config = home / "config"
    config.write_text(sshd.ssh_config_text("gpu-*", "  ProxyJump bastion") + bastion.ssh_config_text("bastion"))
    before = bastion.logins(), sshd.logins()
    transport = OpensshTransport(ConfigFiles(config))
    hosts = [Host(name, SshSettings(name)) for name in ("gpu-1", "gpu-2", "gpu-3")]
    assert fan_out(hosts, lambda host: answering(transport, host).close()).errors == {}
    assert (bastion.logins() - before[0], sshd.logins() - before[1]) == (1, 3)


def test_refused_key_is_reported_with_the_output_of_ssh(sshd: Sshd) -> None:
    error = refusal(direct(sshd, identity_file=str(make_key("stranger"))))
    where = f"{sshd.address}:{sshd.port}"
    assert error.summary == f"ssh cannot log in to gpu-a ({where}) as {sshd.user}"
    assert "Permission denied (publickey)" in error.detail
    assert error.hint.startswith(f"ssh -i {make_key('stranger')} -p {sshd.port} {sshd.user}@{sshd.address} true    ")


def test_machine_without_ssh_is_reported(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert refusal(direct(sshd)).summary == "there is no `ssh` on this machine"


def test_dtctl_ssh_uses_the_kept_connection(sshd: Sshd) -> None:
    host = direct(sshd, client="openssh")
    log_in(host)
    before = sshd.logins()
    command = [*ssh_command(host), "echo", "there"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    assert (done.stdout, done.stderr, sshd.logins()) == ("there\n", "", before)
