"""What is asked of whom for a report, and what becomes of hosts that do not answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.errors import DtctlError, TransportError
from dtctl.operations.coordinator import coordinator_away
from dtctl.operations.events import read_events
from dtctl.operations.report.gathering import gather
from dtctl.operations.status import status_elsewhere
from dtctl.render.report.markdown import markdown
from dtctl.render.report.page import page
from dtctl.render.report.sections import show_unasked
from tests.unit.coordinated import Agents, record, told
from tests.unit.fakes import BEATS_FOR_EVER, FakeSession, FakeTransport
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


def test_each_host_has_one_connection_and_the_coordinators_tells_of_the_whole_run() -> None:
    transport = FakeTransport(Told(told(account=account())))
    found = gather(record(), transport, {})
    assert Counter(transport.opened) == dict.fromkeys("abcd", 1)
    assert all(session.closed for session in transport.sessions.values())
    assert [one.greeting["hostname"] for one in found.hosts] == [one.name for one in found.hosts]
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


class Beating(Told):
    """These hosts only beat, to each request of these kinds."""

    def __init__(self, hosts: str, kinds: tuple[str, ...] = ("status", "events", "metrics")) -> None:
        super().__init__(told())
        self._silent = {(host, kind) for host in hosts for kind in kinds}
        self.waits: Counter[str] = Counter()

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        if (session.host.name, fields["type"]) in self._silent:
            self.waits[session.host.name] += 1
            return [dict(BEATS_FOR_EVER)]
        return super().__call__(session, fields)


@pytest.mark.parametrize("hosts", ["c", "b", "bc"])
def test_hosts_that_only_beat_cost_one_patience_each_and_what_they_were_not_asked_for_is_told(hosts: str) -> None:
    agents = Beating(hosts)
    found = gather(record(), FakeTransport(agents), {})
    assert agents.waits == Counter(hosts)
    assert set(found.errors) == set(hosts)
    assert all("did not finish its answer" in error.summary for error in found.errors.values())
    assert found.unasked == (dict.fromkeys(hosts, ("events", "metrics")) if "c" in hosts else {})
    if "c" in hosts:
        for written in (page(found), markdown(found)):
            assert "did not finish its answer within 120 s" in written
            assert ": not asked for events and metrics any more" in written


def test_a_coordinator_that_has_no_story_to_tell_is_not_asked_for_scalars_then() -> None:
    agents = Beating("c", ("events",))
    found = gather(record(), FakeTransport(agents), {})
    assert agents.waits == {"c": 1}
    assert found.unasked == {"c": ("metrics",)}
    assert found.status.coordination is not None
    assert {one.host for one in found.scalars.series} == set("abd")


def test_a_coordinator_whose_story_is_not_to_be_believed_costs_no_time_and_is_asked_for_scalars_all_the_same() -> None:
    class Strange(Told):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
            said = super().__call__(session, fields)
            return [{"type": "shutdown"}] if fields["type"] == "events" and fields["whole"] else said

    found = gather(record(), FakeTransport(Strange(told())), {})
    assert list(found.errors) == ["c"]
    assert found.unasked == {}
    assert {one.host for one in found.scalars.series} == set("abcd")


def test_who_reads_the_story_alone_waits_for_each_once_too() -> None:
    agents = Beating("bc")
    story = read_events(record(), FakeTransport(agents), last=None)
    assert agents.waits == Counter("bc")
    assert set(story.errors) == {"b", "c"}


def test_who_begins_to_watch_does_not_wait_for_the_coordinator_again() -> None:
    agents = Beating("c")
    error = coordinator_away("c", TransportError("c did not finish its answer"))
    found = status_elsewhere(error, record(), FakeTransport(agents))
    assert agents.waits == Counter()
    assert found.away is not None
    assert found.away.cause is error.cause
    assert list(found.errors) == ["c"]


def test_hosts_that_were_spared_the_same_are_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show_unasked({"gpu-1": ("metrics",), "a": ("events", "metrics"), "gpu-2": ("metrics",)})
    assert capsys.readouterr().err.splitlines() == [
        "gpu-[1-2]: not asked for metrics any more",
        "a: not asked for events and metrics any more",
    ]


def test_without_the_coordinators_host_the_others_tell_the_rest() -> None:
    away = TransportError("cannot reach c")
    found = gather(record(), FakeTransport(Told(told()), {"c": away}), {})
    assert list(found.errors) == ["c"]
    assert found.goodput is None
    assert len(found.scalars.series) == 3
    assert "Unknown: the logs report no step" in page(found)


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
