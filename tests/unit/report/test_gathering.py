"""What is asked of whom for a report, and what becomes of hosts that do not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import DtctlError, TransportError
from dtctl.operations.report.gathering import gather
from dtctl.render.report.page import page
from tests.unit.coordinated import Agents, record, told
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.report.reports import account


class Told(Agents):
    """They also tell the story and scalars."""

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        if fields["type"] == "metrics":
            self.asked.append((session.host.name, "metrics", fields))
            steps = {"steps": [1, 2], "times": [1020.0, 1030.0], "values": ["1.0", "0.5"]}
            loss = {"tag": "loss", "count": 2, "least": "0.5", "most": "1.0", **steps}
            folder = {"dir": f"/out/{session.host.name}", "name": ".", "identity": session.host.name, "series": [loss]}
            return [{"type": "result", "run": "digits-1", "time": 1100.0, "dirs": ["/out"], "folders": [folder]}]
        if fields["type"] == "events" and fields["whole"] and self.view is not None:
            moved = {"task": "worker:0", "attempt": 1, "from": "pending", "to": "starting", "host": "c"}
            line = {"type": "event", "n": 0, "time": 1005.0, **moved}
            return [line, {"type": "result", "run": "digits-1", "next": 1}]
        if fields["type"] == "events":
            return [{"type": "result", "run": "digits-1", "next": 0}]
        return super().__call__(session, fields)


def test_every_host_is_asked_once_and_the_coordinators_for_the_whole_run_besides() -> None:
    transport = FakeTransport(Told(told(account=account())))
    found = gather(record(), transport, {})
    assert Counter(transport.opened) == {"c": 3, "a": 1, "b": 1, "d": 1}
    assert [one.hostname for one in found.hosts] == [one.name for one in found.hosts]
    assert {one.tag for one in found.scalars.series} == {"loss"}
    assert [one.points[0].value for one in found.rates] == [0.1] * 4
    assert found.errors == {}
    assert found.goodput is not None
    begins = {str(line.task): line.attempts[0].begin for line in found.timeline.tasks}
    assert begins["worker:0"] == 1005.0, "as the story tells"
    assert begins["ps:0"] == 1001.0, "as its host tells"


def test_a_host_that_is_away_is_named_and_the_others_tell_what_they_know() -> None:
    away = TransportError("cannot reach b")
    found = gather(record(), FakeTransport(Told(told()), {"b": away}), {})
    assert found.errors == {"b": away}
    assert "cannot reach b" in page(found)


def test_without_the_coordinators_host_the_others_tell_the_rest() -> None:
    away = TransportError("cannot reach c")
    found = gather(record(), FakeTransport(Told(told()), {"c": away}), {})
    assert list(found.errors) == ["c"]
    assert found.goodput is None
    assert len(found.scalars.series) == 3
    assert "Not known: no step was told" in page(found)


def test_where_nobody_answers_nothing_is_made_up() -> None:
    away = {host: TransportError(f"cannot reach {host}") for host in "abcd"}
    found = gather(record(), FakeTransport(Told(told()), away), {})
    assert set(found.errors) == set("abcd")
    assert found.status.time == 0


@pytest.mark.parametrize("tag", ["global_step/sec", "steps_per_second"])
def test_a_rate_that_trainers_tell_themselves_is_not_made_anew(tag: str) -> None:
    class Rates(Told):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            said = super().__call__(session, fields)
            if fields["type"] == "metrics":
                said[0]["folders"][0]["series"][0]["tag"] = tag  # type: ignore[index]
            return said

    assert gather(record(), FakeTransport(Rates(told())), {}).rates == ()
