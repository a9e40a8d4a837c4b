"""What the transport makes of faults of separate hosts, and what killed tests have left; other tests do the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.errors import ConnectionLost, TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport import payload
from dtctl.transport.seam import answering
from dtctl.transport.ssh import protocol
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts import fleet as fleets
from tests.hosts import network
from tests.hosts.fleet import Fleet, module_fleet
from tests.ssh.tiny_agent import OPENING
from tests.waiting import eventually

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.nightly,  # every other test of a fleet leans on what is looked at here
    pytest.mark.skipif(bool(fleets.missing()), reason=f"no fleet: {fleets.missing()}"),
]


pair = module_fleet(2)


@pytest.fixture
def transport(pair: Fleet, monkeypatch: pytest.MonkeyPatch) -> SshTransport:
    monkeypatch.setattr(payload, "opening", lambda: OPENING)
    return SshTransport(ConfigFiles(pair.ssh_config))


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
    assert "sent nothing" in caught.value.detail
    with pytest.raises(TransportError, match="does not answer within 1 s"):
        answering(transport, host)
    assert pair["gpu-2"].is_up
    pair.heal(pair["gpu-2"])
    eventually(lambda: _opens(transport, host), what="the host to be reached again")


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


def _opens(transport: SshTransport, host: Host) -> bool:
    try:
        answering(transport, host).close()
    except TransportError:
        return False
    return True
