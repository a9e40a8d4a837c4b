"""The hosts that other tests stand on, and what the transport makes of their faults."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.errors import ConnectionLost, HostKeyError, TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport import payload
from dtctl.transport.connect import Transports
from dtctl.transport.seam import answering
from dtctl.transport.ssh import protocol
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts import fleet as fleets
from tests.hosts import network, sandbox
from tests.hosts.fleet import Fleet
from tests.hosts.loopback_fleet import LoopbackFleet, best_fleet
from tests.hosts.sandbox import Sandbox
from tests.ssh.tiny_agent import OPENING
from tests.waiting import eventually

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.nightly,  # every other test of a fleet leans on what is looked at here
    pytest.mark.skipif(bool(fleets.missing()), reason=f"no fleet: {fleets.missing()}"),
]


@pytest.fixture(scope="module")
def pair() -> Iterator[Fleet]:
    with Fleet(2) as made:
        yield made


@pytest.fixture
def transport(pair: Fleet, monkeypatch: pytest.MonkeyPatch) -> SshTransport:
    monkeypatch.setattr(payload, "opening", lambda: OPENING)
    return SshTransport(ConfigFiles(pair.ssh_config))


def test_hosts_have_names_addresses_users_and_homes_of_their_own(pair: Fleet) -> None:
    for host in pair.hosts:
        assert host.exec("hostname").strip() == host.name
        assert host.address in host.exec("ip", "-4", "-o", "addr", "show", "eth0")
        assert host.exec("sh", "-c", "id -un; echo $HOME").split() == ["train", "/home/train"]
        (host.home / "mine").write_text(host.name)
        assert host.exec("cat", "mine") == host.name
    assert len({host.address for host in pair.hosts}) == 2


def test_hosts_find_and_reach_each_other_by_name(pair: Fleet) -> None:
    script = "import socket; socket.create_connection(('gpu-2', 22), 5).close()"
    pair["gpu-1"].exec(sys.executable, "-c", script)


def test_the_shared_directory_is_one(pair: Fleet) -> None:
    pair["gpu-1"].exec("sh", "-c", f"echo hello > {pair.shared}/note")
    assert pair["gpu-2"].exec("cat", f"{pair.shared}/note") == "hello\n"


def test_hosts_see_only_their_own_processes(pair: Fleet) -> None:
    assert "sshd" in pair["gpu-1"].exec("ps", "-p", "1", "-o", "args=")
    assert pair["gpu-1"].processes() == []


def test_what_a_login_leaves_running_is_seen(pair: Fleet) -> None:
    start = "setsid sleep 1234 </dev/null >/dev/null 2>&1 &"
    subprocess.run(["ssh", "-F", str(pair.ssh_config), "gpu-1", start], check=True)
    eventually(lambda: pair["gpu-1"].processes() == ["sleep 1234"])
    assert pair["gpu-2"].processes() == []
    pair["gpu-1"].exec("pkill", "sleep")
    eventually(lambda: pair["gpu-1"].processes() == [])


def test_the_transport_reaches_hosts_by_the_fleets_configuration(pair: Fleet, transport: SshTransport) -> None:
    for host in pair.hosts:
        session = answering(transport, Host(host.name, SshSettings(host.name)))
        assert session.facts["home"] == "/home/train"
        session.close()


def test_a_crash_ends_all_and_a_boot_brings_back_the_files_with_another_boot_id(
    pair: Fleet, transport: SshTransport
) -> None:
    host = pair["gpu-2"]
    boot_id = host.exec("cat", "/proc/sys/kernel/random/boot_id")
    (host.home / "kept").write_text("kept")
    session = answering(transport, Host("gpu-2", SshSettings("gpu-2")))
    pair.crash(host)
    assert not host.is_up
    pair.boot(host)
    assert host.exec("cat", "kept") == "kept"
    assert host.exec("cat", "/proc/sys/kernel/random/boot_id") != boot_id
    assert host.processes() == []
    with pytest.raises(ConnectionLost):
        session.receive(30)
    session.close()


def test_a_host_that_is_cut_off_is_noticed_and_heals(
    pair: Fleet, transport: SshTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "IDLE_WAIT_S", 0.2)
    monkeypatch.setattr(protocol, "PROBE_AFTER_S", 1)
    monkeypatch.setattr(protocol, "DEAD_AFTER_S", 3.0)
    host = Host("gpu-2", SshSettings("gpu-2", connect_timeout_s=1))
    session = answering(transport, host)
    with pytest.raises(TimeoutError):
        session.receive(5)  # quiet, but alive: it answers the probes
    pair.cut(pair["gpu-2"])
    with pytest.raises(ConnectionLost) as caught:
        session.receive(30)
    session.close()
    assert "nothing was heard" in caught.value.detail
    with pytest.raises(TransportError, match="does not answer within 1 s"):
        answering(transport, host)
    assert pair["gpu-2"].is_up
    pair.heal(pair["gpu-2"])
    eventually(lambda: _opens(transport, host), what="the host to be reached again")


def test_a_firewall_that_refuses_one_port(pair: Fleet) -> None:
    host = pair["gpu-1"]
    rule = ["INPUT", "-p", "tcp", "--dport", "2222", "-j", "REJECT", "--reject-with", "tcp-reset"]
    host.exec("iptables", "-A", *rule, root=True)
    try:
        script = "import socket; s = socket.create_server(('', 2222)); input()"
        listener = subprocess.Popen(
            ["nsenter", "--target", str(host.box.init), "--all", sys.executable, "-c", script], stdin=subprocess.PIPE
        )
        connect = f"import socket; socket.create_connection(('{host.address}', 2222), 5)"
        with listener:
            eventually(lambda: ":2222" in host.exec("ss", "-ltn"), what="the listener")
            with pytest.raises(subprocess.CalledProcessError):
                pair["gpu-2"].exec(sys.executable, "-c", connect)
            host.exec("iptables", "-D", *rule, root=True)
            rule.clear()
            pair["gpu-2"].exec(sys.executable, "-c", connect)
            listener.communicate(b"\n")
    finally:
        if rule:
            host.exec("iptables", "-D", *rule, root=True)


def test_a_fleet_that_is_not_trusted_can_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "opening", lambda: OPENING)
    with Fleet(1, prefix="new-", trusted=False) as fleet:
        transports = Transports(ssh_config=fleet.ssh_config)
        host = Host("new-1", SshSettings("new-1"))
        with pytest.raises(HostKeyError, match="is not known"):
            answering(transports, host)
        trust = transports.trust()
        (station,) = trust.route(host)
        assert trust.pin(station, trust.scan(station)) == fleet.known_hosts
        answering(transports, host).close()


def test_nothing_is_left_of_a_fleet() -> None:
    with Fleet(1) as fleet:
        name, directory = fleet.network.name, fleet.directory
        init = fleet.hosts[0].box.init
        assert any(found.startswith(name) for found in network.existing())
    assert not any(found.startswith(name) for found in network.existing())
    assert not directory.exists()
    assert not Path(f"/proc/{init}").exists()


def test_what_a_killed_test_run_left_behind_is_removed_by_the_next() -> None:
    script = (
        "import os, signal\n"
        "from tests.hosts.fleet import Fleet\n"
        "fleet = Fleet(1).__enter__()\n"
        "print(fleet.network.name, fleet.hosts[0].box.init, fleet.directory, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    name, init, directory = done.stdout.split()
    eventually(lambda: not Path(f"/proc/{init}").exists(), what="the host to end with its maker")
    assert any(found.startswith(name) for found in network.existing())
    fleets.sweep()
    assert not any(found.startswith(name) for found in network.existing())
    assert not Path(directory).exists()


def test_the_stand_in_on_loopback_crashes_and_boots(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fleets, "missing", lambda: "as if there were no network")
    with best_fleet(2) as fleet:
        assert isinstance(fleet, LoopbackFleet)
        assert "as if there were no network" in capsys.readouterr().err
        use(fleet)
        first = fleet.hosts[0]
        (first.home / "kept").write_text("kept")
        fleet.crash(first)
        fleet.boot(first)
        assert (first.home / "kept").read_text() == "kept"
        use(fleet)


def test_the_stand_in_needs_no_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    user = sandbox.make_user("train", 0, tmp_path / "home")
    root = Path(__file__).resolve().parents[2]
    box = Sandbox(tmp_path, [user], visible=[root, Path(sys.base_prefix), Path(sys.prefix)])
    script = (
        "from tests.fleet.test_fleet_itself import use\n"
        "from tests.hosts.loopback_fleet import best_fleet\n"
        "with best_fleet(2) as fleet:\n"
        "    use(fleet)\n"
        "    print(type(fleet).__name__, fleet.hosts[0].user)\n"
    )
    box.start(["sleep", "600"])
    try:
        eventually(lambda: box.init and Path(f"/proc/{box.init}/comm").read_text() == "sleep\n", what="the sandbox")
        # Its temporary files in its home: who sweeps outside does not see that their owner lives.
        own = [f"PYTHONPATH={root}", f"TMPDIR={user.home_inside}"]
        words = box.run(["env", *own, sys.executable, "-c", script], user).split()
    finally:
        box.kill()
    assert words == ["LoopbackFleet", "train"]


def use(fleet: LoopbackFleet) -> None:
    """Logs in to every host, sees what runs there, and sees it end."""
    transport = SshTransport(ConfigFiles(fleet.ssh_config))
    for host in fleet.hosts:
        session = answering(transport, Host(host.name, SshSettings(host.name)))
        assert Path(session.facts["home"]) in (host.home, Path("/home/train"))
        assert host.processes()
        session.close()
        eventually(lambda: host.processes() == [])  # noqa: B023


def _opens(transport: SshTransport, host: Host) -> bool:
    try:
        answering(transport, host).close()
    except TransportError:
        return False
    return True
