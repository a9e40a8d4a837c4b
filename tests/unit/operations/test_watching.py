"""A run that is watched, and when its start is over or has failed."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.reasons import said, sentence
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run.outcome import by_request
from dtctl.config.cluster import Recovery
from dtctl.errors import AgentError, ConnectionLost, TransportError
from dtctl.model import TaskId, TaskState
from dtctl.operations import watch as watching
from dtctl.operations.client import streams
from dtctl.operations.client.streams import MOST, Disconnected, Feed, Reconnected
from dtctl.operations.follow import follow_log
from dtctl.operations.logs import LogLines
from dtctl.operations.snapshot import Coordination, RunStatus
from dtctl.operations.up.result import awaited, failed_exits, failed_start, has_begun, not_listening, present
from dtctl.operations.watch import Over, watch_run
from dtctl.render.starting import show_late
from dtctl.rooms.metrics.operation import Series, follow_loss
from tests.unit.coordinated import Agents, Script, entry, record, state_of, viewed
from tests.unit.diagnosing import machine
from tests.unit.fakes import FakeSession, FakeTransport
from tests.unit.operations.test_follow import RESULT, states
from tests.unit.operations.test_gc import folder
from tests.unit.tasks import past_attempt
from tests.waiting import PATIENCE_S

LOG = {"type": "log", "task": "worker:0", "attempt": 1, "offset": 0, "end": 5, "time": 1.0, "payload": b"line\n"}
POINTS = {"type": "points", "run": "digits-1", "folders": [folder("/out", "7-events", 1)]}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_RETRY_S", (0.01,))
    monkeypatch.setattr(watching, "TOGETHER_S", 0.0)


class Watched(Agents):
    """`watches`: what each host says to one request to watch after the other, and then ends what it says at once.

    A watch that ends with `then` is followed by that: `more`, it is asked again, or an end of all.
    """

    def __init__(self, **watches: list[Script]) -> None:
        super().__init__(viewed())
        self.watches = watches
        self.asked_to_watch: list[Mapping[str, Any]] = []

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        host, kind = session.host.name, fields["type"]
        if kind == "watch":
            self.asked_to_watch.append(fields)
            return self.watches[host].pop(0) if self.watches.get(host) else [dict(RESULT)]
        if kind == "logs":
            return [dict(LOG), dict(RESULT)]
        if kind == "metrics":
            rest = {"time": 1.0, "dirs": [], "folders": [], "problems": [], "unread_bytes": 0, "omitted": 0}
            return [dict(POINTS), {**RESULT, **rest}]
        return super().__call__(session, fields)


def seen(stream: Generator[object, None, None], enough: Callable[[list[object]], bool]) -> list[object]:
    """What it tells until there is enough of it."""
    found: list[object] = []
    with closing(stream):
        for one in stream:
            found += [one] if one is not None else []
            if enough(found):
                return found
    raise AssertionError("endless")


def is_over(found: list[object]) -> bool:
    return Over() in found


def test_one_connection_receives_all_changes_until_the_end() -> None:
    step = viewed(tasks={"worker:0": entry(step=7)})
    agents = Watched(c=[[states(viewed()), states(step), dict(RESULT)]])
    transport = FakeTransport(agents)
    found = seen(watch_run(record(), transport), is_over)
    steps = [one.progress.step for one in found if isinstance(one, RunStatus)]
    assert steps == [None, None, 7, None]
    assert transport.opened == ["c"]
    assert agents.asked_to_watch[0]["for_s"] == watching.LOOK_AGAIN_S
    assert [kind for _, kind, _ in agents.asked] == ["status", "status"]
    assert transport.sessions["c"].closed


def test_checkpoints_are_asked_for_again_over_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_AGAIN_S", 0.0)
    agents = Watched()
    transport = FakeTransport(agents)
    found = seen(watch_run(record(), transport), lambda found: len(found) >= 4)
    assert all(isinstance(one, RunStatus) for one in found)
    assert transport.opened == ["c"]


def test_a_view_is_as_old_as_the_answer_before_it_at_the_most() -> None:
    agents = Watched(c=[[states(viewed(time=1001.0)), states(viewed(time=1020.0)), dict(RESULT)]])
    found = seen(watch_run(record(), FakeTransport(agents)), is_over)
    times = [one.time for one in found if isinstance(one, RunStatus)]
    assert times[0] == 1010.0
    assert 1010.0 <= times[1] < 1015.0
    assert times[2] == 1020.0


def test_every_host_is_queried_while_the_coordinator_is_away() -> None:
    held = threading.Event()

    class Going(Watched):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
            if (session.host.name, fields["type"]) == ("c", "status") and "c" in self.asked_of("status"):
                held.wait(PATIENCE_S)
            if fields["type"] == "watch" and session.host.name == "a":
                tasks = {"ps:0": entry("stalled", why=said("no step"))}
                return [{"type": "states", "run": "digits-1", "state": state_of("a", tasks)}, dict(RESULT)]
            return super().__call__(session, fields)

    agents = Going(c=[[states(viewed()), ConnectionLost("gone")]])
    transport = FakeTransport(agents)

    def enough(found: list[object]) -> bool:
        last = found[-1]
        if isinstance(last, RunStatus) and last.coordination is None:
            alone.append(last)
            if last.tasks[TaskId("ps", 0)].state is TaskState.STALLED:
                held.set()
        return (
            any(isinstance(one, Reconnected) for one in found)
            and isinstance(last, RunStatus)
            and bool(last.coordination)
        )

    alone: list[RunStatus] = []
    found = seen(watch_run(record(), transport), enough)
    assert [one.host for one in found if isinstance(one, Disconnected)] == ["c"]
    assert alone[-1].tasks[TaskId("ps", 1)].state is TaskState.RUNNING
    assert alone[-1].tasks[TaskId("worker", 0)].state is TaskState.LOST
    assert alone[-1].away is not None
    assert [transport.opened.count(host) for host in "abd"] == [1, 1, 1]


def test_a_host_that_is_away_too_is_reported_as_such() -> None:
    agents = Watched(c=[[states(viewed()), ConnectionLost("gone")]])

    class Gone(FakeTransport):
        def open(self, host: Any) -> Any:
            if host.name == "c" and "c" in self.opened:
                raise TransportError("no route to c")
            return super().open(host)

    transport = Gone(agents, {"d": TransportError("no route to d")})
    found = seen(
        watch_run(record(), transport), lambda found: isinstance(found[-1], RunStatus) and "d" in found[-1].errors
    )
    last = found[-1]
    assert isinstance(last, RunStatus)
    assert set(last.errors) == {"c", "d"}
    assert last.tasks[TaskId("ps", 0)].state is TaskState.RUNNING


def test_watching_without_a_run_is_an_error() -> None:
    empty = {"type": "result", "run": None, "time": 1.0}
    with pytest.raises(AgentError, match="no run of digits on c"):
        seen(watch_run(record(), FakeTransport(lambda *_: [dict(empty)])), is_over)


def test_a_run_that_has_moved_is_watched_where_it_is() -> None:
    agents = Watched()
    agents.run = dataclasses.replace(record(), lead=TaskId("worker", 1))
    found = seen(watch_run(record(), FakeTransport(agents)), is_over)
    first = found[0]
    assert isinstance(first, RunStatus)
    assert first.record.coordinator == "d"


def test_report_about_tasks_of_other_hosts_is_rejected() -> None:
    lie = viewed(hosts={"a": {"state": state_of("a", {"ps:1": entry()})}})
    agents = Watched(c=[[states(lie), dict(RESULT)]])
    found = seen(watch_run(record(), FakeTransport(agents)), lambda found: isinstance(found[-1], Disconnected))
    away = found[-1]
    assert isinstance(away, Disconnected)
    assert "invalid `states`" in away.error.summary


def test_the_log_of_a_task_comes_from_its_host_alone() -> None:
    transport = FakeTransport(Watched())
    (lines,) = seen(follow_log(record(), transport, TaskId("worker", 0), 10), lambda found: len(found) == 1)
    assert isinstance(lines, LogLines)
    assert lines.data == b"line\n"
    assert set(transport.opened) == {"c"}


def test_the_loss_comes_from_the_host_of_the_lead_alone() -> None:
    transport = FakeTransport(Watched())
    (series,) = [one for one in follow_loss(record(), transport) if one is not None]
    assert isinstance(series, Series)
    assert series.points[0].value == 0.5
    assert transport.opened == ["c"]


def test_a_feed_queues_reports_and_delivers_the_error_last() -> None:
    def tell() -> Generator[object, None, None]:
        yield from (1, None, 2)
        raise TransportError("gone")

    feed = Feed(tell).start()
    assert feed.first() == 1
    feed.close()
    taken = feed.take()
    assert taken[:2] == [1, 2]
    assert isinstance(taken[2], TransportError)
    assert feed.take() == []


def test_a_stream_waits_for_a_slow_consumer() -> None:
    steps: list[int] = []

    def tell() -> Generator[object, None, None]:
        for number in itertools.count():
            steps.append(number)
            yield number

    feed = Feed(tell).start()
    taken: list[object] = []
    while len(taken) < 3 * MOST:
        taken += feed.take()
        assert len(steps) <= len(taken) + 2 * MOST + 2
    feed.close()
    assert taken == list(range(len(taken)))


def test_a_feed_that_is_closed_ends_its_stream() -> None:
    ended = threading.Event()

    def tell() -> Generator[object, None, None]:
        try:
            while True:
                yield None
        finally:
            ended.set()

    feed = Feed(tell).start()
    feed.close()
    assert ended.wait(PATIENCE_S)
    assert feed.first() is None


PS = TaskId("ps", 0)
WORKER = TaskId("worker", 1)


def known(phase: str = "starting", condition: str = "Running", cause: str | None = None, **tasks: Any) -> Coordination:
    """`ps0`, `worker1`: what these tasks are, of four that else run and are ready."""
    named = {f"{name[:-1]}:{name[-1]}": one for name, one in tasks.items()}
    view = viewed(condition, tasks=named, phase=phase, cause=cause)
    return Coordination.of(checked(RunView, view), record().roster)


def ended(attempt: int, code: int | None = 125, **fields: Any) -> dict[str, Any]:
    return dict(past_attempt(attempt, 1.0, 2.0, code, **fields))


def lost(*ends: dict[str, Any], state: str = "backoff") -> dict[str, Any]:
    return entry(state, ready=False, attempt=len(ends), history=list(ends))


@pytest.mark.parametrize(
    ("phase", "worker", "begun"),
    [
        ("starting", entry(), False),
        ("running", entry(), True),
        ("running", entry("pending"), False),
        ("running", entry("starting"), False),
        ("running", lost(ended(1)), True),
        ("running", lost(ended(1, early=True)), False),
        ("finishing", entry("pending"), True),
        ("ended", entry("pending"), True),
    ],
)
def test_a_start_is_over_when_every_task_has_begun_or_the_run_is_decided(
    phase: str, worker: dict[str, Any], begun: bool
) -> None:
    assert has_begun(known(phase, worker1=worker)) is begun


def test_tasks_of_hosts_that_the_run_continues_without_are_not_waited_for() -> None:
    view = viewed(phase="running", hosts={"d": {"connected": False, "heard": None, "state": None, "absent": True}})
    assert has_begun(Coordination.of(checked(RunView, view), record().roster))


def test_running_tasks_that_do_not_listen_are_named() -> None:
    now = known(ps0=entry(ready=False), worker1=entry("starting", ready=False))
    assert not_listening(now) == (PS,)
    assert awaited(present(now)) == "ps:0 loading; worker:1 starting"
    assert awaited(present(now), most=1) == "ps:0 loading and 1 more"


def test_after_half_a_minute_those_that_do_not_listen_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_late(known(ps0=entry(ready=False)))
    show_late(known(ps0=entry(ready=False), worker1=entry(ready=False)))
    shown = capsys.readouterr().err
    assert "ps:0 is still loading after 30 s; a program without a port counts as started at its first step\n" in shown
    assert "ps:0,worker:1 are still loading after 30 s; " in shown


def test_the_first_failed_exit_of_each_task_is_reported_once() -> None:
    now = known(ps0=lost(ended(1), state="running"), worker1=lost(ended(1, early=True)))
    assert [one.id for one in failed_exits(now, ())] == [PS], "worker:1 only missed its ps"
    assert failed_exits(now, {PS}) == []


@pytest.mark.parametrize(
    ("ends", "gives_up"),
    [
        ([ended(1)], False),
        ([ended(1), ended(2)], True),
        ([ended(1), ended(2, code=1)], False),
        ([ended(1), ended(2, early=True)], False),
        ([ended(1), ended(2, asked=True)], False),
        ([ended(1, cause="no room at 0x7f"), ended(2, cause="no room at 0x8a")], True),
        ([ended(1, step=3), ended(2)], False),
        ([ended(1, code=42), ended(2, code=42)], False),
        ([ended(1, code=None, signal=11), ended(2, code=None, signal=11)], False),
        ([ended(1, code=None, signal=6), ended(2, code=None, signal=6)], True),
        ([ended(number, cause="Address already in use") for number in (1, 2)], False),
        ([ended(number, cause="Address already in use") for number in (1, 2, 3)], True),
    ],
)
def test_a_start_that_ends_the_same_way_again_is_given_up(ends: list[dict[str, Any]], gives_up: bool) -> None:
    now = known(ps0=lost(*ends))
    found = failed_start(now, Recovery())
    assert (found is not None) is gives_up
    assert found is None or (found.gave_up and found.cause is not None and found.cause.id == PS)
    assert failed_start(now, Recovery(repeat=0)) is None, "the file wants it tried again and again"
    assert failed_start(known("running", ps0=lost(*ends)), Recovery()) is None, "others train already"


def test_a_start_is_given_up_though_it_runs_if_no_task_has_stayed() -> None:
    ends = [ended(1), ended(2)]
    again: dict[str, Any] = {name: lost(*ends) for name in ("ps0", "ps1", "worker0", "worker1")}
    found = failed_start(known("running", **again), Recovery())
    assert found is not None
    assert found.gave_up
    again["worker0"] = lost(*ends, state="running")
    assert failed_start(known("running", **again), Recovery()) is not None, "it runs for a third time"
    again["worker0"] = entry()
    assert failed_start(known("running", **again), Recovery()) is None


def test_permanently_failed_task_fails_the_start_with_the_runs_cause_first() -> None:
    failed = entry("failed", ready=False, history=[ended(1, code=2)])
    found = failed_start(known("running", worker1=failed), Recovery())
    assert found is not None
    assert (found.cause and found.cause.id, found.gave_up) == (WORKER, False)
    both = failed_start(known("finishing", "Failed", "worker:1", ps0=failed, worker1=failed), Recovery())
    assert both is not None
    assert both.cause is not None
    assert both.cause.id == WORKER
    without = failed_start(known("finishing", "Failed"), Recovery())
    assert without is not None
    assert without.cause is None
    assert failed_start(known(), Recovery()) is None


@pytest.mark.parametrize(("ahead_s", "shown"), [(3600.0, 4990.0), (-3600.0, 4990.0), (20.0, 5010.0)])
def test_times_of_a_host_whose_clock_is_wrong_are_by_the_coordinators_clock(ahead_s: float, shown: float) -> None:
    at = 4990.0 + ahead_s
    past = past_attempt(1, at, at, 1)
    one = known(worker1=entry(step=7, step_time=at, progress=at, since=at, history=[past]))
    contact = one.view["hosts"][record().roster[WORKER]]
    assert contact["state"] is not None
    contact["heard"] = 5000.0
    contact["state"]["machine"] = machine(time=5000.0 + ahead_s)
    found = Coordination.of(one.view, record().roster).tasks[WORKER].entry
    assert {found["step_time"], found["progress"], found["since"], found["history"][0]["ended"]} == {shown}


@pytest.mark.parametrize(
    ("cause", "number", "reason"),
    [
        ("KeyError: 'label'", 2, "ps:0 failed to start: exit code 1 (KeyError: 'label')"),
        ("", 2, "ps:0 failed to start: exit code 1"),
        ("OSError: [Errno 98] Address already in use", 3,
         "ps:0 could not bind its port (OSError: [Errno 98] Address already in use)"),
    ],
)  # fmt: skip
def test_a_start_that_is_given_up_is_stopped_with_its_cause(cause: str, number: int, reason: str) -> None:
    found = failed_start(known(ps0=lost(*[ended(at + 1, code=1, cause=cause) for at in range(number)])), Recovery())
    assert found is not None
    assert sentence(found.why) == reason
    assert by_request(found.why, found.ends_as, ["ps:0"]).kind == "Failed"


def test_a_run_that_has_failed_keeps_its_reason() -> None:
    failed = entry("failed", ready=False, history=[ended(1, code=2)])
    found = failed_start(known("finishing", "Failed", "worker:1", worker1=failed), Recovery())
    assert found is not None
    assert tuple(found.why) == tuple(found.seen.verdict.why)
