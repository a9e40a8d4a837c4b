"""Which run is followed when the one whose logs were followed has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dtctl.agent.records.reasons import Fact, fact
from dtctl.errors import TransportError
from dtctl.operations.logs.following import PATIENCE_S, Onward, onward
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from tests.unit.coordinated import Agents, Script, record
from tests.unit.fakes import FakeSession, FakeTransport


def ended(*why: Fact) -> RunStatus:
    return RunStatus(record(), {}, Verdict(Outcome.STOPPED, why), (), 1010.0)


STOPPED, REPLACED = fact("stopped"), fact("makes_room")


class Later(Agents):
    """The new run is there from a certain question on."""

    def __init__(self, questions: int, run: str = "digits-2", created: float = 2000.0) -> None:
        super().__init__()
        self.after = record(run, created)
        self.questions = questions

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        assert fields["run"] is None, "the cluster's current run is asked for"
        self.questions -= 1
        if self.questions < 0:
            self.run = self.after
        return super().__call__(session, fields)


def found(agents: Any, *why: Fact, **more: Any) -> tuple[Onward | None, list[float]]:
    waited: list[float] = []
    known = dataclasses.replace(record(), run=None)
    told = onward(
        ended(*why), known, FakeTransport(agents, **more), wait=waited.append, now=lambda: sum(waited, start=0.0)
    )
    return told, waited


def test_a_run_that_ends_for_good_is_the_last() -> None:
    assert found(Agents(), STOPPED) == (None, [])


def test_a_newer_run_of_the_cluster_goes_on() -> None:
    told, _ = found(Later(0), STOPPED)
    assert told is not None
    assert told.record is not None
    assert told.record.run == "digits-2"


def test_a_run_for_which_it_was_stopped_is_waited_for() -> None:
    told, waited = found(Later(3), REPLACED)
    assert told is not None
    assert told.record is not None
    assert set(waited) == {1.0}


def test_one_that_never_begins_is_reported_after_a_while() -> None:
    told, waited = found(Agents(), REPLACED)
    assert told == Onward(None)
    assert sum(waited) >= PATIENCE_S


def test_an_older_run_is_none_to_go_on_with() -> None:
    assert found(Later(0, "digits-0", 500.0), STOPPED) == (None, [])


def test_where_no_host_answers_nothing_follows() -> None:
    away = {host: TransportError(f"no route to {host}") for host in "abcd"}
    assert found(Agents(), STOPPED, unreachable=away) == (None, [])
