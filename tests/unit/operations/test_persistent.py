"""Conversations that are kept open between one look and the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import AgentError, ConnectionLost, DtctlError, TransportError
from dtctl.model import Host, TaskId, TaskState
from dtctl.operations import run_record
from dtctl.operations.client import ask_hosts
from dtctl.operations.client.persistent import NotAsked, PersistentTransport, for_one_command
from dtctl.operations.coordinator import request_of_status
from dtctl.operations.status import status
from dtctl.transport.connect import Transports
from dtctl.transport.seam import Session
from tests.unit.coordinated import Agents, Beating, record, viewed
from tests.unit.fakes import FakeSession, FakeTransport
from tests.waiting import PATIENCE_S, eventually


def test_a_host_that_is_asked_again_and_again_has_one_connection() -> None:
    agents = Agents(viewed())
    transport = FakeTransport(agents)
    with PersistentTransport(transport) as kept:
        for _ in range(3):
            assert status(record(), kept).coordination is not None
        assert not transport.sessions["c"].closed
    assert transport.opened == ["c"]
    assert agents.asked_of("status") == ["c"] * 3
    assert transport.sessions["c"].closed


def test_conversations_are_continued_by_the_next_who_opens_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Agents(viewed())
    transport, transports = FakeTransport(agents), Transports()
    monkeypatch.setattr(transports, "_transport", lambda kind: transport)
    with PersistentTransport(transports) as kept:
        status(record(), kept)
        transports.resume(*kept.hand_over(), None)
    for _ in range(2):
        assert status(record(), transports).coordination is not None
    assert transport.opened == ["c", "c"]
    assert agents.asked_of("status") == ["c"] * 3


def test_a_lost_idle_connection_is_reopened_silently() -> None:
    agents = Agents(viewed())
    transport = FakeTransport(agents)
    with PersistentTransport(transport) as kept:
        status(record(), kept)
        transport.sessions["c"]._pending.append(ConnectionLost("c has gone"))
        assert status(record(), kept).coordination is not None
    assert transport.opened == ["c", "c"]


def test_a_connection_lost_during_an_answer_is_an_error() -> None:
    gone = ConnectionLost("c has gone")
    agents = Agents(viewed(), instead=lambda session, _: [gone] if session.host.name == "c" else None)
    transport = FakeTransport(agents)
    with PersistentTransport(transport) as kept:
        assert "c" in status(record(), kept).errors
    assert transport.opened.count("c") == 1


def test_an_error_of_the_agent_ends_a_conversation_and_the_next_is_another() -> None:
    agents = Agents(viewed(), status=[AgentError("internal", "a bug")])
    transport = FakeTransport(agents)
    with PersistentTransport(transport) as kept:
        status(record(), kept)
        del agents.extra["status"]
        assert status(record(), kept).coordination is not None
    assert transport.opened.count("c") >= 2
    assert all(session.closed for session in transport.sessions.values())


def test_an_unreachable_host_is_skipped_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    away = {"c": TransportError("cannot reach c")}
    transport = FakeTransport(Agents(viewed()), away)
    with PersistentTransport(transport) as kept:
        for at, times in ((100.0, 1), (101.9, 1), (102.1, 2), (106.9, 2), (107.2, 3)):
            now[0] = at
            with pytest.raises(TransportError, match="cannot reach c"):
                kept.open(record().route_to("c"))
            assert transport.opened.count("c") == times
        away.clear()
        transport._unreachable = {}
        now[0] = 200.0
        kept.open(record().route_to("c")).close()
        assert transport.opened.count("c") == 4


def test_host_with_only_heartbeats_costs_one_timeout_and_others_are_asked_again() -> None:
    agents = Beating(viewed())
    transport = FakeTransport(agents)
    with for_one_command(transport) as kept:
        for asked in (1, 2, 3):
            errors = ask_hosts(record(), kept, request_of_status(record())).errors
            assert list(errors) == ["c"]
            assert isinstance(errors["c"], NotAsked) == (asked > 1)
            assert (agents.asked_of("status").count("c"), agents.asked_of("status").count("a")) == (1, asked)
        assert transport.sessions["c"].closed, "it would go on to beat"
    assert transport.opened.count("c") == 1


def test_a_host_with_invalid_answers_is_skipped_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    transport = FakeTransport(Agents(viewed()))
    with PersistentTransport(transport) as kept:
        session = kept.open(record().route_to("c"))
        session.send({"type": "status", "run": None})
        now[0] += 120.0
        session.close()
        with pytest.raises(NotAsked):
            kept.open(record().route_to("c"))


def test_few_conversations_are_kept_with_many_hosts() -> None:
    transport = FakeTransport(Agents(viewed()))
    with PersistentTransport(transport, most=2) as kept:
        assert len(ask_hosts(record(), kept, request_of_status(record())).results) == 4
        assert [session.closed for session in transport.sessions.values()].count(False) == 2


def test_a_slow_host_is_queried_after_as_long_as_it_delayed_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Slow(Beating):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            now[0] += 120.0 if session.host.name == "c" and self.beats else 0.0
            return super().__call__(session, fields)

    agents = Slow(viewed())
    with PersistentTransport(FakeTransport(agents)) as kept:
        assert "c" in status(record(), kept).errors
        now[0] += 119.0
        assert isinstance(status(record(), kept).errors["c"], NotAsked)
        now[0] += 2.0
        agents.beats = False
        assert status(record(), kept).coordination is not None


def test_an_early_connection_to_a_host_that_is_away_is_awaited_for_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_record, "AWAY_CONNECT_S", 0.2)
    over = threading.Event()

    class Silent(FakeTransport):
        def open(self, host: Host) -> Session:
            if host.name == "d":
                over.wait(PATIENCE_S)
            return super().open(host)

    transport = Silent(Agents(viewed(hosts={"d": {"connected": False, "heard": 1004.0}})))
    with PersistentTransport(transport) as kept:
        kept.expect(record().hosts.values())
        found = status(record(), kept)
        assert found.tasks[TaskId("worker", 1)].state is TaskState.LOST
        assert transport.opened.count("d") == 0, "it is still being connected to"
        over.set()
        eventually(lambda: transport.sessions.get("d"), what="the early connection")


def test_expected_connections_open_early_and_close_if_unused() -> None:
    transport = FakeTransport(Agents(viewed()), {"d": TransportError("cannot reach d")})
    with PersistentTransport(transport) as kept:
        kept.expect(record().hosts.values())
        eventually(lambda: sorted(transport.opened) == ["a", "b", "c", "d"], what="all conversations")
        kept.open(record().route_to("a")).close()
        with pytest.raises(TransportError, match="cannot reach d"):
            kept.open(record().route_to("d"))
    eventually(lambda: all(session.closed for session in transport.sessions.values()), what="the end of all")
    assert sorted(transport.opened) == ["a", "b", "c", "d"], "each of them once"
    assert sorted(transport.sessions) == ["a", "b", "c"]
