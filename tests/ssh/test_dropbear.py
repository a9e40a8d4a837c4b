"""An SSH server other than OpenSSH's."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from dtctl.errors import TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport.connect import Transports
from dtctl.transport.seam import answering
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts import sandbox
from tests.hosts.keys import make_key
from tests.hosts.sshd import DROPBEAR, dropbear
from tests.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.skipif(DROPBEAR is None, reason="dropbear not found"),
    pytest.mark.skipif(bool(sandbox.missing()), reason=f"no user to log in as: {sandbox.missing()}"),
]


def host(port: int, known_hosts: Path, key: Path) -> Host:
    settings = SshSettings("127.0.0.1", user="train", port=port, identity_file=str(key), known_hosts=str(known_hosts))
    return Host("box", settings)


def test_a_conversation_over_dropbear(tiny_agent: None) -> None:
    data = os.urandom(3_000_000)
    with dropbear() as (port, known_hosts):
        session = answering(SshTransport(), host(port, known_hosts, make_key("login")))
        session.send({"type": "digest"}, data)
        assert session.receive(PATIENCE_S)["sha256"] == hashlib.sha256(data).hexdigest()
        session.close()


def test_errors_and_keys_of_dropbear(tmp_path: Path) -> None:
    with dropbear() as (port, known_hosts):
        with pytest.raises(TransportError) as caught:
            answering(SshTransport(), host(port, known_hosts, make_key("stranger")))
        (station,) = Transports().stations(host(port, tmp_path / "none", make_key("login")))
        (key,) = station.scan()
        assert key.base64 in known_hosts.read_text()
    assert "the host accepts publickey" in caught.value.detail
