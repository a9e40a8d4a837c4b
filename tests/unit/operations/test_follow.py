"""Whoever follows a run only looks: the coordinator's word ends it, and a host that is away is waited for."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Intent
from dtctl.errors import AgentError, ConnectionLost, DtctlError, TransportError
from dtctl.model import TaskId
from dtctl.operations import watch
from dtctl.operations.client import streams
from dtctl.operations.client.streams import Away, Back
from dtctl.operations.follow import Ended, Event, follow
from dtctl.operations.logs import LogRequest
from dtctl.operations.snapshot import Outcome, RunStatus
from dtctl.operations.status import status
from tests.unit.coordinated import Agents, Script, entry, record, state_of, told
from tests.unit.fakes import FakeSession, FakeTransport

END = told("Succeeded", "worker:0 finished", phase="ended")
RESULT = {"type": "result", "run": "digits-1"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_RETRY_S", (0.01,))


class Watched(Agents):
    """`watches`: what the coordinator says to one request to watch after the other; logs end at once."""

    def __init__(self, *watches: Script, view: Mapping[str, Any] = END) -> None:
        super().__init__(view)
        self.watches = list(watches)
        self._readers: list[FakeSession] = []
        """Sessions that have read logs: they watch for more of them."""

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        host, kind = session.host.name, fields["type"]
        if kind == "watch" and session not in self._readers:
            return self.watches.pop(0) if host == "c" else [dict(RESULT)]
        if kind == "logs":
            self._readers.append(session)
            log = {"task": fields["tasks"][0], "attempt": 1, "offset": 0, "end": 9, "time": 1.0}
            return [{"type": "log", **log}, {**RESULT}]
        if kind == "watch":
            tasks = {str(task): entry("succeeded") for task in self.run.tasks_on(host)}
            return [{"type": "states", "run": "digits-1", "state": state_of(host, tasks)} for _ in range(1000)]
        return super().__call__(session, fields)


def states(view: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "states", "run": "digits-1", "coordination": view}


def followed(agents: Agents, *tasks: str, unreachable: Mapping[str, DtctlError] | None = None) -> list[Event]:
    wanted = LogRequest(tuple(map(TaskId.parse, tasks)))
    transport = FakeTransport(agents, unreachable)
    events = [event for event in follow(record(), transport, wanted) if event is not None]
    assert all(session.closed for session in transport.sessions.values())
    return events


def test_without_logs_one_connection_tells_it_all() -> None:
    agents = Watched([states(told()), states(END), RESULT])
    events = followed(agents)
    assert [type(event) for event in events] == [RunStatus] * 4 + [Ended]
    assert {host for host, _, _ in agents.asked} == {"c"}
    (ended,) = (event for event in events if isinstance(event, Ended))
    assert ended.status.verdict.outcome is Outcome.SUCCEEDED
    assert ended.status.time == 1010.0


def test_a_coordinator_that_goes_away_is_waited_for() -> None:
    events = followed(Watched([states(told()), ConnectionLost("gone")], [states(END), RESULT]))
    led = [type(event) for event in events if not isinstance(event, RunStatus) or event.coordination]
    assert led == [RunStatus, RunStatus, Away, Back, *[RunStatus] * 3, Ended]


def test_the_end_waits_for_the_logs_of_hosts_that_can_be_reached() -> None:
    agents = Watched([states(END), RESULT])
    events = followed(agents, "worker:0", "worker:1", "ps:0", unreachable={"a": TransportError("no route to a")})
    assert isinstance(events[-1], Ended)
    assert "a" in [event.host for event in events if isinstance(event, Away)]


def test_where_there_is_no_run_there_is_nothing_to_follow() -> None:
    class Empty(Agents):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
            if fields["type"] == "status":
                return [{"type": "result", "run": None, "time": 1.0}]
            return [AgentError("no_run", "there is no run of digits on this host")]

    with pytest.raises(AgentError, match="no run of digits on c"):
        followed(Empty())


def test_what_hosts_report_while_the_coordinator_is_away_has_the_verdict_of_status() -> None:
    """The worker of the coordinator's own host is unknown, and a ps still runs: decided, but not over."""

    class Deciding(Agents):
        def status(self, host: str, view: Mapping[str, Any] | None) -> dict[str, Any]:
            answer = super().status(host, view)
            failed = {
                task: entry("failed", reason="exit code 2") for task in answer["state"]["tasks"] if task[0] == "w"
            }
            return {**answer, "state": {**answer["state"], "tasks": {**answer["state"]["tasks"], **failed}}}

    transport = FakeTransport(Deciding(), {"c": TransportError("no route to c")})
    events = follow(record(), transport, LogRequest(()))
    first = next(event for event in events if isinstance(event, RunStatus))
    assert (first.coordination, first.verdict, first.is_over) == (None, status(record(), transport).verdict, False)
    assert first.verdict.outcome is Outcome.FAILED


def test_a_run_that_is_over_everywhere_else_needs_no_coordinator() -> None:
    class Over(Agents):
        def status(self, host: str, view: Mapping[str, Any] | None) -> dict[str, Any]:
            answer = super().status(host, view)
            tasks = {task: entry("failed", reason="exit code 2") for task in answer["state"]["tasks"]}
            return {**answer, "state": state_of(host, tasks)}

    events = followed(Over(), unreachable={"c": TransportError("no route to c")})
    assert isinstance(events[-1], Ended)
    assert events[-1].status.verdict.outcome is Outcome.FAILED
    assert events[-1].status.away is not None


def test_a_run_that_is_stopped_while_its_coordinator_is_gone_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_AGAIN_S", 0.01)
    monkeypatch.setattr(watch, "TOGETHER_S", 0.0)
    seen: list[str] = []

    class StoppedLater(Watched):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
            if fields["type"] == "watch" and session.host.name != "c":
                time.sleep(watch.LOOK_AGAIN_S)  # its tasks still run
            return super().__call__(session, fields)

        def status(self, host: str, view: Mapping[str, Any] | None) -> dict[str, Any]:
            answer = super().status(host, view)
            if host == "c" or seen.count(host) < 2:
                seen.append(host)
                return answer
            tasks = {task: entry("stopped") for task in answer["state"]["tasks"]}
            intents = {task: made(Intent, want="stop") for task in tasks}
            return {**answer, "state": state_of(host, tasks), "intents": intents}

    agents = StoppedLater([states(told()), ConnectionLost("gone")])
    agents.watches += [[ConnectionLost("gone")]] * 1000
    events = followed(agents)
    assert isinstance(events[-1], Ended)
    assert events[-1].status.verdict.outcome is Outcome.STOPPED


def test_a_run_that_has_moved_is_followed_where_it_is() -> None:
    moved = dataclasses.replace(record(), lead=TaskId("worker", 1))

    class Moved(Watched):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
            if fields["type"] == "watch" and session.host.name == "c":
                return [AgentError("not_coordinator", "this host does not coordinate the run")]
            return super().__call__(session, fields)

    agents = Moved([states(END), RESULT])
    agents.run = moved
    events = followed(agents)
    assert isinstance(events[-1], Ended)
    assert events[-1].status.record.coordinator == "d"
