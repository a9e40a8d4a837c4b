"""Ports of this machine: what several dtctl take at the same time, and what a run is going to listen on."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dtctl.agent.host import ports as host_ports
from dtctl.operations import local as local_ports
from dtctl.operations.local import LocalPorts


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def is_free(port: int, table: Path = Path("/proc/net/unix")) -> bool:
    ports = LocalPorts(table)
    try:
        return ports.is_free(port)
    finally:
        ports.give_back()


def test_what_one_has_chosen_is_not_free_for_another_until_it_is_gone(port: int) -> None:
    one, other = LocalPorts(), LocalPorts()
    assert (one.is_free(port), other.is_free(port), one.is_free(port)) == (True, False, True)
    one.give_back()
    assert other.is_free(port)
    other.give_back()


def test_what_a_run_is_going_to_listen_on_is_not_free(port: int) -> None:
    held = host_ports.claim([port])
    assert not LocalPorts().is_free(port)
    for claim in held:
        os.close(claim)
    assert is_free(port)
    assert local_ports._CLAIM.format(port) == host_ports.CLAIM % port


def test_two_agents_may_claim_a_port_and_a_refused_one_is_not_kept_from_others(port: int) -> None:
    one = host_ports.claim([port])
    two = host_ports.claim([port, port])  # of the same process: its name is taken, and that is nobody's trouble
    looking = LocalPorts()
    assert not looking.is_free(port)
    for claim in (*one, *two):
        os.close(claim)
    assert is_free(port)


def test_a_port_that_somebody_listens_on_is_not_free(port: int) -> None:
    with socket.socket() as listener:
        listener.bind(("", port))
        listener.listen()
        assert not LocalPorts().is_free(port)


def test_a_system_without_such_names_has_free_ports_too(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_ports, "_CHOOSING", "x" * 200 + "{}")
    assert LocalPorts(tmp_path / "none").is_free(port)
