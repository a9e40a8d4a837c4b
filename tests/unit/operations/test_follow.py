"""Logs that are followed: the coordinator's word ends it, hosts that are away are awaited, and the run that
replaces it follows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import typer

from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, because, fact
from dtctl.agent.records.run_state import Intent
from dtctl.cli import watching
from dtctl.cli.options import Scope
from dtctl.errors import AgentError, ConnectionLost, DtctlError, TransportError
from dtctl.model import TaskId
from dtctl.operations import follow as onwards
from dtctl.operations import watch
from dtctl.operations.client import streams
from dtctl.operations.client.streams import Disconnected, Reconnected
from dtctl.operations.follow import PATIENCE_S, Ended, Event, Onward, follow, onward
from dtctl.operations.logs import LogRequest
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from dtctl.operations.status import status
from dtctl.render.logs import TOGETHER_S, Narrator
from tests.unit.coordinated import Agents, Script, entry, record, state_of, viewed, with_states
from tests.unit.fakes import FakeSession, FakeTransport

END = viewed("Succeeded", "worker:0 finished", phase="ended")
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


def test_one_connection_suffices_without_logs() -> None:
    agents = Watched([states(viewed()), states(END), RESULT])
    events = followed(agents)
    assert [type(event) for event in events] == [RunStatus] * 4 + [Ended]
    assert {host for host, _, _ in agents.asked} == {"c"}
    (ended,) = (event for event in events if isinstance(event, Ended))
    assert ended.status.verdict.outcome is Outcome.SUCCEEDED
    assert ended.status.time == 1010.0


def test_a_coordinator_that_goes_away_is_waited_for() -> None:
    events = followed(Watched([states(viewed()), ConnectionLost("gone")], [states(END), RESULT]))
    led = [type(event) for event in events if not isinstance(event, RunStatus) or event.coordination]
    assert led == [RunStatus, RunStatus, Disconnected, Reconnected, *[RunStatus] * 3, Ended]


def test_the_end_waits_for_the_logs_of_hosts_that_can_be_reached() -> None:
    agents = Watched([states(END), RESULT])
    events = followed(agents, "worker:0", "worker:1", "ps:0", unreachable={"a": TransportError("no route to a")})
    assert isinstance(events[-1], Ended)
    assert "a" in [event.host for event in events if isinstance(event, Disconnected)]


FAILED = entry("failed", **because([fact("exited", code=2)]))


def test_reports_of_hosts_without_the_coordinator_have_the_verdict_of_status() -> None:
    """The worker of the coordinator's own host is unknown, and a ps still runs: decided, but not over."""

    def reported(host: str, answer: dict[str, Any]) -> dict[str, Any]:
        return with_states(answer, {task: FAILED for task in answer["state"]["tasks"] if task.startswith("worker")})

    transport = FakeTransport(Agents(reported=reported), {"c": TransportError("no route to c")})
    events = follow(record(), transport, LogRequest(()))
    first = next(event for event in events if isinstance(event, RunStatus))
    assert (first.coordination, first.verdict, first.is_over) == (None, status(record(), transport).verdict, False)
    assert first.verdict.outcome is Outcome.FAILED


def test_a_run_that_is_over_everywhere_else_needs_no_coordinator() -> None:
    agents = Agents(reported=lambda _, answer: with_states(answer, dict.fromkeys(answer["state"]["tasks"], FAILED)))
    events = followed(agents, unreachable={"c": TransportError("no route to c")})
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

    agents = StoppedLater([states(viewed()), ConnectionLost("gone")])
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


def ended(*why: Fact) -> RunStatus:
    replaced = REPLACED in why
    return RunStatus(record(), {}, Verdict(Outcome.STOPPED, why, replaced=replaced), (), 1010.0)


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


@pytest.mark.parametrize(
    ("agents", "why", "away", "newer", "looks"),
    [
        (Agents(), STOPPED, "", None, 0),
        (Later(0), STOPPED, "", "digits-2", 0),
        (Later(3), REPLACED, "", "digits-2", None),
        (Agents(), REPLACED, "", "", int(PATIENCE_S) + 1),
        (Later(0, "digits-0", 500.0), STOPPED, "", None, 0),
        (Agents(), STOPPED, "abcd", None, 0),
    ],
    ids=[
        *("an end for good is the last", "a newer one follows", "the one that it made room for is waited for"),
        *("one that never begins is reported after a while", "an older one follows nothing", "no host answers"),
    ],
)
def test_the_run_that_follows(agents: Agents, why: Fact, away: str, newer: str | None, looks: int | None) -> None:
    """`newer`: empty where the answer is that it has not begun; `looks`: for how many seconds it was waited for."""
    waited: list[float] = []
    transport = FakeTransport(agents, {host: TransportError(f"no route to {host}") for host in away})
    known = dataclasses.replace(record(), run=None)
    found = onward(ended(why), known, transport, wait=waited.append, now=lambda: sum(waited, start=0.0))
    assert (found and (found.record.run if found.record else "")) == newer
    assert set(waited) <= {1.0}
    assert len(waited) == looks if looks is not None else len(waited) > 0


class Following:
    """Runs that end one after the other; `asked` are the logs that were asked for of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *then: Onward | None) -> None:
        self.asked: list[tuple[str | None, LogRequest]] = []
        self.printed_for: list[Sequence[TaskId]] = []
        self._then = list(then)
        monkeypatch.setattr(watching, "watch", self._watch)
        monkeypatch.setattr(onwards, "onward", lambda *_: self._then.pop(0))
        monkeypatch.setattr(Scope, "transport", None)
        monkeypatch.setattr(Scope, "started_here", lambda scope, run: None)

    def _watch(self, scope: Scope, of: RunRecord, wanted: LogRequest, printer: object) -> tuple[RunStatus, tuple[()]]:
        self.asked.append((of.run, wanted))
        return RunStatus(
            of, {}, Verdict(Outcome.STOPPED, (fact("replaced", run="digits-2"),), replaced=True), (), 1010.0
        ), ()

    def by(self, scope: Scope, names: list[str] | None, **wanted: Any) -> int:
        def printer_for(tasks: Sequence[TaskId]) -> Any:
            self.printed_for.append(tasks)

        first = LogRequest(tuple(record().roster), **wanted)
        with pytest.raises(typer.Exit) as ended:
            watching.follow_logs(scope, record(), names, first, printer_for)
        return int(ended.value.exit_code)


def test_all_of_the_new_run_is_shown_and_what_is_searched_for_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fewer = dataclasses.replace(record("digits-2"), roster={TaskId("worker", 0): "c", TaskId("worker", 1): "d"})
    followed = Following(monkeypatch, Onward(fewer), None)
    assert followed.by(Scope("logs"), ["worker"], lines=10, since=5.0, grep="loss") == 1
    assert [run for run, _ in followed.asked] == ["digits-1", "digits-2"]
    then = followed.asked[1][1]
    assert (then.lines, then.since, then.grep, then.tasks) == (None, None, "loss", tuple(fewer.roster))
    assert followed.printed_for[1] == tuple(fewer.roster)
    assert "digits-1 was replaced by digits-2: its logs follow\n" in capsys.readouterr().err


def test_a_run_that_was_named_is_followed_to_its_end_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Following(monkeypatch)
    assert followed.by(Scope("logs", run="digits-1"), None) == 1
    assert len(followed.asked) == 1


def test_following_ends_with_a_message_if_the_new_run_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = Following(monkeypatch, Onward(None))
    assert followed.by(Scope("logs"), None) == 1
    assert (
        "digits-1 was stopped to make room for another run, which has not begun within 120 s" in capsys.readouterr().err
    )


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def away(host: str) -> Disconnected:
    return Disconnected(host, TransportError(f"{host} ({host}:22) does not answer", shared_summary="no answer"))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    return lambda: capsys.readouterr().err.splitlines()


def test_hosts_that_go_away_together_are_one_entry(said: Callable[[], list[str]]) -> None:
    narrate = Narrator("gpu-1", None)
    for number in range(2, 12):
        narrate(away(f"gpu-{number}"))
        narrate(away(f"gpu-{number}"))
    assert said() == []
    narrate(None)
    assert said() == ["error: gpu-[2-11]: no answer"]
    narrate(None)
    assert said() == [], "once"


def test_messages_are_held_back_for_a_limited_time(said: Callable[[], list[str]]) -> None:
    clock = Clock()
    narrate = Narrator("gpu-1", None, clock)
    narrate(away("gpu-2"))
    clock.now += TOGETHER_S
    narrate(away("gpu-3"))
    assert said() == ["error: gpu-2 (gpu-2:22) does not answer"]
    narrate.report_away()
    assert said() == ["error: gpu-3 (gpu-3:22) does not answer"]


def test_a_reconnected_host_is_reported_after_its_loss(said: Callable[[], list[str]]) -> None:
    narrate = Narrator("gpu-1", None)
    narrate(away("gpu-2"))
    narrate(Reconnected("gpu-2"))
    assert said() == ["error: gpu-2 (gpu-2:22) does not answer", "gpu-2 can be reached again"]


def test_the_coordinators_absence_is_shown_at_once(said: Callable[[], list[str]]) -> None:
    Narrator("gpu-1", None)(away("gpu-1"))
    assert said() == ["error: gpu-1 (gpu-1:22) does not answer", "the run continues without it; trying again"]
