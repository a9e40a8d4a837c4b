"""`diagnose` asks each host once, and tells of those that it cannot ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import DtctlError, TransportError
from dtctl.model import TaskId
from dtctl.operations.diagnosis.diagnose import diagnose
from dtctl.operations.snapshot import Outcome
from tests.unit.coordinated import Agents, record, told
from tests.unit.fakes import BEATS_FOR_EVER, FakeSession, FakeTransport

GONE = TransportError("cannot reach it")


def test_each_host_is_asked_in_one_conversation() -> None:
    agents = Agents(told())
    transport = FakeTransport(agents)
    found = diagnose(record(), transport)
    assert sorted(transport.opened) == ["a", "b", "c", "d"]
    assert sorted((host, kind) for host, kind, _ in agents.asked) == sorted(
        (host, kind) for host in "abcd" for kind in ("status", "diagnose")
    )
    assert [one.signature.name for one in found.found] == ["frozen"]
    assert found.errors == {}


def test_what_others_tell_is_told_where_the_coordinator_is_away() -> None:
    transport = FakeTransport(Agents(told()), {"c": GONE})
    found = diagnose(record(), transport)
    assert sorted(found.facts.hosts) == ["a", "b", "d"]
    assert list(found.errors) == ["c"]
    assert "frozen" in [one.signature.name for one in found.found]
    assert found.status.verdict.outcome is not Outcome.FAILED


def test_a_host_that_tells_of_foreign_tasks_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = Agents(told())
    monkeypatch.setattr(type(record()), "names_on", lambda self, host: frozenset({"ps:0", "ps:1", "worker:0"}))
    found = diagnose(record(), FakeTransport(agents))
    assert list(found.errors) == ["d"]
    assert "invalid record" in found.errors["d"].summary


def test_a_host_that_the_run_was_moved_to_and_that_only_beats_is_waited_for_once() -> None:
    class Beating(Agents):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            told = super().__call__(session, fields)
            return [dict(BEATS_FOR_EVER)] if session.host.name == "e" else told

    moved = record(created=2000.0)
    spare = dataclasses.replace(moved.hosts["d"], name="e")
    here = dataclasses.replace(
        moved, roster={**moved.roster, TaskId("worker", 0): "e"}, hosts={**moved.hosts, "e": spare}
    )
    agents = Beating(run=here)
    found = diagnose(dataclasses.replace(record(), others={"e": spare}), FakeTransport(agents, {"c": GONE}))
    assert [kind for host, kind, _ in agents.asked if host == "e"] == ["status"]
    assert set(found.errors) == {"c", "e"}
