"""Free ports, and who has the others."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from dtctl.agent.host import ports, processes
from dtctl.agent.requests.starting import most_ports
from dtctl.transport.payload import LOADER


def test_a_chosen_port_is_kept_until_it_is_let_go_and_is_no_ephemeral_one() -> None:
    found = ports.hold(())
    assert found is not None
    port, held = found
    low, high = ports.ephemeral()
    assert port >= 10_000
    assert not low <= port <= high
    assert ports.taken(port)
    ports.let_go(held)
    assert not ports.taken(port)
    assert held == []


def test_ports_of_others_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ephemeral", lambda: (10_003, 65_535))
    with socket.socket() as other:
        other.bind(("0.0.0.0", 10_001))
        found = ports.hold({10_002})
        assert found is not None
        port, held = found
        assert port == 10_000
        assert ports.hold({10_002}) is None
        ports.let_go(held)


def test_round_numbers_are_proposed_from_which_on_enough_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ephemeral", lambda: (2750, 60_999))
    monkeypatch.setattr(ports, "taken", lambda port: port == 2403)
    assert ports.free_from(3, most=4) == [2400, 2500, 2600, 2700]
    assert ports.free_from(4, most=3) == [2500, 2600, 2700]
    assert ports.free_from(51, most=3) == [2500, 2600, 61_000]


def test_the_holder_of_a_port_is_told_with_its_pid() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert ports.holder(server.getsockname()[1]).startswith("pid ")


def test_the_user_of_a_process_that_cannot_be_seen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "listening", lambda port: {"1": 0})
    monkeypatch.setattr(ports, "holds", lambda name, inodes: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert ports.holder(2222) == "a process of root"


@pytest.mark.parametrize(
    ("command", "holding"),
    [
        ("python3 serve.py", ("pid 7 (python3 serve.py)", False)),
        (LOADER, ("pid 7 (a dtctl check, for some seconds)", True)),
    ],
)
def test_another_check_that_tries_a_port_is_known_at_one_look(
    command: str, holding: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def listening(port: int) -> dict[str, int]:
        looks.append(port)
        return {"1": os.geteuid()}

    monkeypatch.setattr(ports, "listening", listening)
    monkeypatch.setattr(ports, "_pid", lambda owners: 7)
    monkeypatch.setattr(processes, "command", lambda pid: command)
    assert ports.holding(2222) == holding
    assert looks == [2222]


def test_as_many_ports_are_wanted_as_the_busiest_machine_needs() -> None:
    places = [("ps:0", "a:1"), ("worker:0", "a:2"), ("worker:1", "a:3"), ("worker:2", "b:1")]
    roster = [{"task": task, "host": "x", "address": address} for task, address in places]
    assert most_ports({"roster": roster}) == 1 + 1 + 2  # type: ignore[typeddict-item]


def test_a_port_that_this_user_may_not_open_is_taken_and_the_system_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root these tests may open any; another user gets what bind(2) says."""

    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("dtctl.agent.host.ports.socket.socket", Refusing)
    monkeypatch.setattr(ports, "listening", lambda port: {})
    monkeypatch.setattr(ports, "_first_of_users", lambda: 1024)
    assert ports.taken(22)
    assert ports.holder(22) == "the system, which lets root alone listen below 1024"
