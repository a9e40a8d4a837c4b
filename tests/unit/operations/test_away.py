"""Hosts that are away, as the run's coordinator reports, are not waited for; others are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dtctl.errors import AgentError, DtctlError, TransportError
from dtctl.model import Host
from dtctl.operations import away
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import ask_hosts
from dtctl.operations.coordinator import request_of_status
from dtctl.transport.fanout import Outcomes
from dtctl.transport.seam import Session
from tests.unit.coordinated import inventory, record, state_of, viewed
from tests.unit.fakes import FakeSession, FakeTransport

SOON_S = 0.1
LONG_S = 30.0
LOST = {"connected": False, "heard": 900.0, "away_since": 901.0}
"""As the coordinator knows a host that it has lost."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(away, "AWAY_CONNECT_S", SOON_S)


class SlowTransport(FakeTransport):
    """Hosts named in `cut` answer nobody until `healed` is set."""

    def __init__(self, *cut: str, lost: tuple[str, ...] = (), run: str | None = "digits-1") -> None:
        super().__init__(self._answer)
        self.cut, self.lost, self.run = cut, lost, run
        self.healed = threading.Event()
        self.dialled: list[str] = []

    def open(self, host: Host) -> Session:
        self.dialled.append(host.name)
        if host.name in self.cut and not self.healed.wait(LONG_S):
            raise TransportError(f"{host.name} does not answer")
        return super().open(host)

    def _answer(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        host = session.host.name
        if self.run is None:
            return [AgentError("no_run", "there is no run", host=host)]
        leads = host == "c"
        view = viewed(hosts=dict.fromkeys(self.lost, LOST)) if leads else None
        return [
            {
                "type": "result",
                "run": self.run,
                "time": 1010.0,
                "inventory": inventory(record()),
                "state": state_of(host, {}),
                "checkpoints": [],
                "coordination": view,
                "away": None,
            }
        ]


@contextmanager
def asked(transport: SlowTransport) -> Iterator[Outcomes[Any]]:
    """All hosts of the run are asked through it."""
    try:
        yield ask_hosts(record(), ImpatientTransport(transport, record()), request_of_status(record()))
    finally:
        transport.healed.set()


def test_a_host_that_the_coordinator_has_lost_is_not_waited_for() -> None:
    began = time.monotonic()
    with asked(SlowTransport("d", lost=("d",))) as outcomes:
        assert time.monotonic() - began < LONG_S / 3
        assert sorted(outcomes.results) == ["a", "b", "c"]
        assert outcomes.errors["d"].summary == "d is unreachable: it could not be connected to within 0.1 s"


def test_a_host_that_is_only_slow_is_waited_for() -> None:
    transport = SlowTransport("d")
    threading.Timer(5 * SOON_S, transport.healed.set).start()
    with asked(transport) as outcomes:
        assert sorted(outcomes.results) == ["a", "b", "c", "d"]


def test_without_a_slow_host_nothing_more_is_asked() -> None:
    transport = SlowTransport(lost=("d",))
    with asked(transport) as outcomes:
        assert sorted(outcomes.results) == ["a", "b", "c", "d"], "the coordinator may have lost one that answers here"
        assert sorted(transport.dialled) == ["a", "b", "c", "d"]


def test_the_coordinator_is_asked_once_for_all_slow_hosts() -> None:
    transport = SlowTransport("a", "b", "d", lost=("a", "b", "d"))
    with asked(transport) as outcomes:
        assert sorted(outcomes.errors) == ["a", "b", "d"]
        assert transport.dialled.count("c") == 2, "for its own answer, and for the hosts that it has lost"


def test_where_no_run_is_a_slow_host_is_waited_for_and_no_other_is_asked() -> None:
    transport = SlowTransport("d", run=None)
    threading.Timer(5 * SOON_S, transport.healed.set).start()
    with asked(transport) as outcomes:
        assert all(isinstance(error, AgentError) for error in outcomes.errors.values()), "d has answered, too"
        assert sorted(transport.dialled) == ["a", "b", "c", "c", "d"]


def test_a_coordinator_that_is_away_without_a_successor_is_waited_for() -> None:
    transport = SlowTransport("c")
    threading.Timer(5 * SOON_S, transport.healed.set).start()
    with asked(transport) as outcomes:
        assert sorted(outcomes.results) == ["a", "b", "c", "d"]


def test_a_connection_that_comes_too_late_is_closed() -> None:
    transport = SlowTransport("d", lost=("d",))
    with asked(transport) as outcomes:
        assert "d" in outcomes.errors
    deadline = time.monotonic() + 10
    while not ("d" in transport.sessions and transport.sessions["d"].closed) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert transport.sessions["d"].closed


def test_hosts_that_must_answer_are_waited_for() -> None:
    transport = SlowTransport("d", lost=("d",))
    threading.Timer(5 * SOON_S, transport.healed.set).start()
    route = ImpatientTransport(transport, record(), awaits=("d",))
    assert sorted(ask_hosts(record(), route, request_of_status(record())).results) == ["a", "b", "c", "d"]
