"""Routes to a host through others: ProxyJump, ProxyCommand, and `jump`."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.errors import HostKeyError, TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport.connect import Transports
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import answering
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.openssh import ssh_command
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts.keys import make_key
from tests.hosts.ports import free_port
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import direct
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.usefixtures("tiny_agent")

GPU = Host("gpu-a", SshSettings("gpu"))


@pytest.fixture(scope="module")
def second() -> Iterator[Sshd]:
    with Sshd() as server:
        yield server


def config(home: Path, *blocks: str) -> SshTransport:
    file = home / "config"
    file.write_text("\n".join(blocks))
    return SshTransport(ConfigFiles(file))


def failure(transport: SshTransport, host: Host = GPU) -> TransportError:
    with pytest.raises(TransportError) as caught:
        answering(transport, host)
    return caught.value


def gpu(server: Sshd, extra: str = "") -> str:
    return server.ssh_config_text("gpu", extra)


def test_a_jump_host_of_ssh_config_is_used(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    before = bastion.logins()
    transport = config(home, gpu(sshd, "  ProxyJump bastion"), bastion.ssh_config_text("bastion"))
    answering(transport, GPU).close()
    assert bastion.logins() == before + 1


def test_jump_hosts_are_used_in_the_given_order(home: Path, sshd: Sshd, bastion: Sshd, second: Sshd) -> None:
    blocks = [bastion.ssh_config_text("bastion"), second.ssh_config_text("second")]
    transport = config(home, gpu(sshd, "  ProxyJump bastion,second"), *blocks)
    hops = transport.logins.hops(SshSettings("gpu"))
    assert [(hop.target, hop.jump) for hop in hops] == [("bastion", None), ("second", "bastion")]
    before = bastion.logins(), second.logins()
    answering(transport, GPU).close()
    assert (bastion.logins(), second.logins()) == (before[0] + 1, before[1] + 1)


def test_a_jump_host_of_the_cluster_file_wins(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    transport = config(home, gpu(sshd, "  ProxyJump nowhere.invalid"), bastion.ssh_config_text("bastion"))
    before = bastion.logins()
    answering(transport, Host("gpu-a", SshSettings("gpu", jump="bastion"))).close()
    assert bastion.logins() == before + 1
    answering(transport, Host("gpu-a", SshSettings("gpu", jump="none"))).close()
    assert bastion.logins() == before + 1


def test_key_and_known_hosts_of_the_cluster_file_apply_to_the_jump_host(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    known = home / "known"
    known.write_text(sshd.known_hosts_text() + bastion.known_hosts_text())
    jump = f"{bastion.user}@{bastion.address}:{bastion.port}"
    answering(SshTransport(), direct(sshd, known_hosts=str(known), jump=jump)).close()


@pytest.mark.parametrize("jumps", [0, 1, 2])
def test_openssh_uses_the_same_route(home: Path, sshd: Sshd, bastion: Sshd, second: Sshd, jumps: int) -> None:
    known = home / "known hosts 100%"
    known.write_text("".join(server.known_hosts_text() for server in (sshd, bastion, second)))
    hops = [f"{server.user}@{server.address}:{server.port}" for server in (bastion, second)[:jumps]]
    host = direct(sshd, known_hosts=str(known), jump=",".join(hops) or None)
    before = bastion.logins(), second.logins()
    command = [*ssh_command(host), "id", "-un"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, start_new_session=True)
    assert (done.stdout.strip(), done.returncode) == (sshd.user, 0), done.stderr
    assert (bastion.logins() - before[0], second.logins() - before[1]) == (int(jumps > 0), int(jumps > 1))


def test_a_jump_host_for_all_hosts_is_not_its_own(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    everybody = "Host *\n  ProxyJump bastion\n"
    transport = config(home, gpu(sshd), bastion.ssh_config_text("bastion"), everybody)
    assert [hop.target for hop in transport.logins.hops(SshSettings("gpu"))] == ["bastion"]
    answering(transport, GPU).close()


def test_jump_hosts_in_a_circle_are_reported(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    transport = config(
        home,
        gpu(sshd, "  ProxyJump a"),
        bastion.ssh_config_text("a", "  ProxyJump b"),
        "Host b\n  HostName 127.0.0.3\n  ProxyJump a\n",
    )
    assert "form a circle" in failure(transport).summary


def test_many_hosts_share_one_login_to_their_jump_host(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    transport = config(home, gpu(sshd, "  ProxyJump bastion"), bastion.ssh_config_text("bastion"))
    before, threads = bastion.logins(), threading.active_count()
    gate = threading.Barrier(6)

    def work(_: int) -> None:
        session = answering(transport, GPU)
        gate.wait(PATIENCE_S)
        session.close()

    assert fan_out(range(6), work, name=str).errors == {}
    assert bastion.logins() == before + 1
    eventually(lambda: threading.active_count() <= threads, what="the end of the connections")


def test_the_host_key_of_a_jump_host_is_checked(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    text = bastion.ssh_config_text("bastion").replace(str(bastion.known_hosts), str(home / "none"))
    error = failure(config(home, gpu(sshd, "  ProxyJump bastion"), text))
    assert isinstance(error, HostKeyError)
    assert "through its gateway: the host key of bastion" in error.summary
    assert error.hint == "dtctl trust"


def test_a_key_that_the_jump_host_refuses_is_reported(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    text = bastion.ssh_config_text("bastion").replace(str(bastion.key), str(make_key("stranger")))
    error = failure(config(home, gpu(sshd, "  ProxyJump bastion"), text))
    where = f"bastion ({bastion.address}:{bastion.port})"
    assert error.summary == f"cannot reach gpu-a through its gateway: cannot log in to {where} as {bastion.user}"


def test_a_jump_host_that_is_down_costs_its_timeout_once(home: Path, sshd: Sshd) -> None:
    port = free_port()
    transport = config(home, gpu(sshd, f"  ProxyJump 127.0.0.1:{port}"))
    outcomes = fan_out(range(6), lambda _: answering(transport, GPU), name=str)
    assert len(outcomes.errors) == 6
    assert {error.summary for error in outcomes.errors.values()} == {
        f"cannot reach gpu-a through its gateway: 127.0.0.1:{port} refuses connections"
    }


def test_a_host_that_the_jump_host_cannot_reach_is_reported(home: Path, bastion: Sshd) -> None:
    port = free_port()
    blocks = [
        f"Host gpu\n  HostName 127.0.0.1\n  Port {port}\n  ProxyJump bastion\n",
        bastion.ssh_config_text("bastion"),
    ]
    error = failure(config(home, *blocks))
    assert error.summary == f"cannot reach gpu-a (127.0.0.1:{port}) through bastion"
    assert "Connect failed" in error.detail


def test_a_jump_host_that_forbids_forwarding_is_reported(home: Path, sshd: Sshd) -> None:
    with Sshd(options={"AllowTcpForwarding": "no"}) as closed:
        error = failure(config(home, gpu(sshd, "  ProxyJump closed"), closed.ssh_config_text("closed")))
    assert "Administratively prohibited" in error.detail


def test_a_proxy_command_gets_host_port_and_user(home: Path, sshd: Sshd) -> None:
    script = home / "proxy"
    script.write_text(f'#!/bin/sh\necho "$@" > "{home}/args"\nexec ssh -F {sshd.ssh_config} -W "$1:$2" testhost\n')
    script.chmod(0o700)
    text = sshd.ssh_config_text("gpu", f"  ProxyCommand '{script}' %h %p %r 100%%\n")
    config(home, text).open(GPU).close()
    assert (home / "args").read_text().split() == [sshd.address, str(sshd.port), sshd.user, "100%"]


def test_a_proxy_command_leaves_no_process_behind(home: Path, sshd: Sshd) -> None:
    script = home / "proxy"
    script.write_text(f'echo $$ > "$HOME/pid"; trap "" TERM\nssh -F {sshd.ssh_config} -W "$1:$2" testhost; sleep 600\n')
    session = config(home, gpu(sshd, f"  ProxyCommand sh '{script}' %h %p\n")).open(GPU)
    pid = int((home / "pid").read_text())
    assert _group(pid)
    session.close()
    eventually(lambda: not _group(pid), what="the end of the proxy and its children")


def _group(leader: int) -> list[str]:
    """The command lines of the living processes of a group."""
    completed = subprocess.run(["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in completed.stdout.splitlines()]
    return [args for pgid, state, args in rows if pgid == str(leader) and not state.startswith("Z")]


def test_a_proxy_command_that_fails_is_quoted(home: Path, sshd: Sshd) -> None:
    error = failure(config(home, gpu(sshd, "  ProxyCommand sh -c 'echo no way >&2; exit 9'\n")))
    assert error.summary == "the ProxyCommand of gpu-a fails"
    assert "exit code 9" in error.detail
    assert "no way" in error.detail


def test_the_first_of_proxy_jump_and_proxy_command_wins(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    before = bastion.logins()
    everybody = "Host *\n  ProxyJump bastion\n"
    config(home, gpu(sshd, "  ProxyCommand none\n"), bastion.ssh_config_text("bastion"), everybody).open(GPU).close()
    assert bastion.logins() == before


def test_trust_goes_through_jump_hosts_nearest_first(home: Path, sshd: Sshd, bastion: Sshd) -> None:
    known = home / "known_hosts.own"
    jump = f"{bastion.user}@{bastion.address}:{bastion.port}"
    host = direct(sshd, known_hosts=str(known), jump=jump)
    way = Transports().stations(host)
    assert [station.name for station in way] == [bastion.address, "gpu-a"]
    assert [station.where for station in way] == [
        f"{bastion.address}:{bastion.port}",
        f"gpu-a ({sshd.address}:{sshd.port})",
    ], "a person compares the key of a machine, not of a name that a file has given it"
    with pytest.raises(HostKeyError):
        way[1].scan()
    for station in way:
        station.pin(station.scan())
    answering(SshTransport(), host).close()
