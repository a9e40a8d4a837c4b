"""The faults themselves, without dtctl: each one happens, and is undone."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.hosts import faults
from tests.hosts.fleet import Fleet, missing
from tests.waiting import eventually

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.nightly,  # the faults of `make test` would not come to what they expect without these
    pytest.mark.skipif(bool(missing()), reason=f"no fleet: {missing()}"),
]

LISTENER = "import socket; s = socket.create_server(('', 3000))\nwhile True: c = s.accept()[0]; c.sendall(c.recv(9))"


@pytest.fixture
def pid(fleet: Fleet) -> Iterator[int]:
    """On gpu-1: a process of the user, that answers each connection to port 3000."""
    host = fleet["gpu-1"]
    number = int(host.exec("sh", "-c", f'{sys.executable} -c "{LISTENER}" >/dev/null 2>&1 & echo $!'))
    eventually(lambda: ":3000" in host.exec("ss", "-ltn"), what="the listener")
    yield number
    if host.is_up:
        faults.send(host, number)
    eventually(lambda: not host.is_up or not host.processes(), what="nothing to be left")


def answers(fleet: Fleet) -> bool:
    """Whether gpu-2 gets an answer from gpu-1 within a second."""
    script = (
        f"import socket; s = socket.create_connection(('{fleet['gpu-1'].address}', 3000), 1); s.send(b'x'); s.recv(1)"
    )
    with suppress(subprocess.CalledProcessError):
        fleet["gpu-2"].exec(sys.executable, "-c", script)
        return True
    return False


def test_sshd_is_gone_and_comes_back(fleet: Fleet) -> None:
    host = fleet["gpu-1"]
    with faults.without_sshd(host), pytest.raises(ConnectionRefusedError):
        socket.create_connection((host.address, 22), 5)
    socket.create_connection((host.address, 22), 5).close()


def test_controllers_are_cut_off_while_hosts_see_each_other(fleet: Fleet, pid: int) -> None:
    with faults.without_controllers(fleet):
        with pytest.raises(OSError):
            socket.create_connection((fleet["gpu-1"].address, 22), 1)
        assert answers(fleet)
    socket.create_connection((fleet["gpu-1"].address, 22), 5).close()


def test_a_stranger_is_given_the_number_of_a_dead_process(fleet: Fleet, pid: int) -> None:
    host = fleet["gpu-1"]
    faults.send(host, pid)
    eventually(lambda: host.processes() == [])
    with faults.stranger_with_pid(host, pid):
        assert host.processes() == ["sleep 86400"]
