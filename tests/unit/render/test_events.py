"""The run's events: from its coordinator, or else from every host; and their display."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import because, fact, said
from dtctl.agent.records.run_state import Past
from dtctl.agent.records.whole_run import HistoryEvent, RunView
from dtctl.errors import AgentError, TransportError
from dtctl.operations.client import streams
from dtctl.operations.client.streams import Disconnected, Reconnected
from dtctl.operations.events import Attempted, Folding, Ordering, folded, follow_events, read_events
from dtctl.operations.snapshot import Coordination
from dtctl.render.events import Told, cause_of, event_line, history_line, incident_lines, losses_lines, news
from tests.unit.coordinated import Agents, Script, incident, record, viewed
from tests.unit.fakes import FakeSession, FakeTransport

EVENTS = yaml.safe_load(Path(__file__).with_name("events.yaml").read_text("utf-8"))


def line(n: int, at: float, **fields: Any) -> dict[str, Any]:
    usual = {"type": "event", "n": n, "time": at, "kind": "task", "host": "a", "task": "ps:0", "attempt": 1}
    return {**usual, "from": "starting", "to": "running", "why": said(""), "by": "", **fields}


class Tellers(Agents):
    """c knows all events, unless it does not coordinate; others know their own."""

    def __init__(self, whole: Script | None = None, own: Mapping[str, Script] | None = None) -> None:
        super().__init__(viewed())
        self.whole = whole
        self.own = own or {}

    def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
        if fields["type"] != "events":
            return super().__call__(session, fields)
        self.asked.append((session.host.name, "events", fields))
        end = {"type": "result", "run": "digits-1", "next": 9}
        if not fields.get("whole"):
            return [*self.own.get(session.host.name, []), end]
        if self.whole is None:
            return [AgentError("not_coordinator", "this host does not coordinate the run")]
        return [*self.whole, end]


def test_the_coordinator_has_all_events() -> None:
    transport = FakeTransport(Tellers([line(0, 1.0), line(1, 2.0)]))
    events = read_events(record(), transport, last=None)
    assert [one["n"] for one in events.lines] == [0, 1]
    assert transport.opened == ["c"]


def test_the_last_lines_are_counted_from_the_end() -> None:
    agents = Tellers([line(7, 1.0)])
    read_events(record(), FakeTransport(agents), last=3)
    assert agents.asked[0][2]["from"] == -3


def test_without_the_coordinator_the_hosts_events_are_merged_by_time() -> None:
    own: dict[str, Script] = {"a": [line(0, 1.0), line(1, 5.0)], "d": [line(0, 3.0, host="d", task="worker:1")]}
    transport = FakeTransport(Tellers(own=own), {"c": TransportError("no route to c")})
    events = read_events(record(), transport, last=2)
    assert [(one["time"], one["host"]) for one in events.lines] == [(3.0, "d"), (5.0, "a")]
    assert list(events.errors) == ["c"]
    assert events.away is not None


def test_following_continues_after_a_break_without_a_lost_or_doubled_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_RETRY_S", (0.01,))

    class Breaks(Tellers):
        def __call__(self, session: FakeSession, fields: Mapping[str, Any]) -> Script:
            if fields["from"] == 0:
                return [line(0, 1.0), line(1, 2.0), TransportError("broken")]
            return [line(fields["from"], 3.0), {"type": "result", "run": "digits-1", "next": 3}]

    seen = list(follow_events(record(), FakeTransport(Breaks()), last=None))
    assert [one["n"] for one in seen if not isinstance(one, Disconnected | Reconnected)] == [0, 1, 2]
    assert [type(one) for one in seen if isinstance(one, Disconnected | Reconnected)] == [Disconnected, Reconnected]


@pytest.mark.parametrize(("fields", "expected"), EVENTS)
def test_an_event_is_one_line(fields: dict[str, Any], expected: str) -> None:
    happening = checked(HistoryEvent, line(0, 1000.0, **fields))
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1000.0))
    assert event_line(happening) == f"{stamp}  {expected}"


def told_of(*condition: str, **fields: Any) -> Coordination:
    return Coordination.of(checked(RunView, viewed(*condition, **fields)), record().roster)


def test_a_loss_is_shown_with_the_steps_it_cost_and_the_time_it_took() -> None:
    (one,) = told_of(incidents=[incident()]).view["incidents"]
    clock = time.strftime("%H:%M:%S", time.localtime(1002.0))
    assert incident_lines(one, 1020.0) == [
        f"ps:1 killed by SIGKILL at {clock}; back to step 1000, 237 steps lost; training again after 9.4 s"
    ]


def test_run_without_steps_is_shown_as_running() -> None:
    one = incident(steps_at_restart={"worker:0": None}, step=None, back_to=None)
    (read,) = told_of(incidents=[one]).view["incidents"]
    assert incident_lines(read, 1020.0)[0].endswith("; running again after 9.4 s")


def test_collateral_failures_are_folded_below_their_cause() -> None:
    collateral = [{"task": "worker:0", "why": said("exit code 1")}, {"task": "worker:1", "why": said("exit code 1")}]
    one = incident(tasks=["ps:1", "worker:0"], collateral=collateral, recovered=None, step=None, back_to=None)
    (read,) = told_of(incidents=[one]).view["incidents"]
    lines = incident_lines(read, 1062.0)
    assert "restarted with it: worker:0" in lines[0]
    assert "not training yet after 1m" in lines[0]
    assert lines[1] == "  after that: worker:0 (exit code 1), worker:1 (exit code 1)"


def test_following_shows_each_event_once() -> None:
    before = told_of()
    loss = told_of(incidents=[incident(recovered=None, begun=None, back_to=None)])
    assert len(news(before, loss)) == 1
    assert news(loss, loss) == []
    assert "training again" in news(loss, told_of(incidents=[incident()]))[0]


def losses(*causes: str) -> list[dict[str, Any]]:
    exits = [because([fact("exited", code=1), fact("cause", text=cause)]) for cause in causes]
    return [
        incident(id=number, noticed=1000.0 + number, recovered=None, begun=None, back_to=None, **why)
        for number, why in enumerate(exits, 1)
    ]


def test_each_cause_of_losses_is_shown_once() -> None:
    read = told_of(incidents=losses("no data in 1", "no room", "no data in 2")).view["incidents"]
    at = [time.strftime("%H:%M:%S", time.localtime(1000.0 + number)) for number in range(4)]
    assert losses_lines(read, 1020.0, 8) == [
        f"ps:1 ended with exit code 1 (no room) at {at[2]}; to be started again",
        f"ps:1 ended with exit code 1 (no data in 2) at {at[3]}, 2 times since {at[1]}; to be started again",
    ]
    assert losses_lines(read, 1020.0, 1)[0] == "1 earlier loss: dtctl events"
    assert losses_lines(read, 1020.0, 8, {cause_of(read[0]), cause_of(read[1])}) == []


def test_following_shows_a_loss_by_the_same_cause_once() -> None:
    first, second = (told_of(incidents=losses(*["no data"] * count)) for count in (1, 2))
    assert len(news(told_of(), first)) == 1
    assert news(first, second) == []
    assert len(news(None, second)) == 1
    assert news(None, told_of("Failed", phase="ended", incidents=losses("no data"))) == [], (
        "the result of the run shows it"
    )


def test_following_shows_awaited_and_unreachable_hosts() -> None:
    waiting = told_of(waits_for=because(said("ps:0 is starting")))
    assert news(told_of(), waiting) == ["waiting: ps:0 is starting"]
    away = told_of(hosts={"d": {"connected": False}})
    assert news(told_of(), away) == ["d is unreachable"]
    assert news(away, told_of()) == ["d is back"]


def test_following_goes_on_when_a_spare_has_taken_the_place_of_a_lost_host() -> None:
    away = told_of(hosts={"d": {"connected": False}})
    now = told_of()
    contacts = {host: one for host, one in now.contacts.items() if host != "d"}
    replaced = dataclasses.replace(now, view={**now.view, "hosts": contacts})
    assert news(away, replaced) == []


def test_incidents_from_before_following_are_not_shown() -> None:
    assert news(None, told_of(incidents=[incident()])) == []


EXIT = because([fact("exited", code=1), fact("cause", text="KeyError: 'x'")])


def moved(at: float, before: str, after: str, attempt: int = 1, task: str = "worker:0", **fields: Any) -> HistoryEvent:
    line = {"time": at, "kind": "task", "host": "gpu-1", "task": task, "attempt": attempt, "from": before, "to": after}
    return checked(HistoryEvent, {**line, **fields})


def decided(at: float, text: str) -> HistoryEvent:
    return checked(HistoryEvent, {"time": at, "kind": "decision", "why": said(text)})


def condition(at: float, to: str) -> HistoryEvent:
    why = because([fact("tasks_run", count=1, of=1)])
    return checked(HistoryEvent, {"time": at, "kind": "condition", "from": "Created", "to": to, **why})


@pytest.mark.parametrize("ahead_s", [-0.5, 0.0, 0.5])
def test_a_run_is_running_after_its_first_task_is(ahead_s: float) -> None:
    """The coordinator writes both in this order, by two clocks."""
    began = 10.0 + ahead_s
    shown = attempts_shown(
        moved(began, "pending", "starting"), moved(began, "starting", "running"), condition(10.0, "Running")
    )
    assert shown == ["worker:0 attempt 1 on gpu-1 runs", "Running"]


def attempts_shown(*events: HistoryEvent) -> list[str]:
    return [re.sub(r"^\S+ \S+  ", "", history_line(one)) for one in folded(events)]


def begun(at: float, attempt: int = 1, task: str = "worker:0") -> list[HistoryEvent]:
    before = "pending" if attempt == 1 else "backoff"
    return [moved(at, before, "starting", attempt, task), moved(at + 1, "starting", "running", attempt, task)]


RESTART = because([fact("restart")])
LOST_PEER = "ConnectionResetError: [Errno 104] Connection reset"
RESET_END = made(Past, attempt=1, started=1.0, ended=2.0, asked=False, code=1, cause=LOST_PEER)
RESET: Any = {**because([fact("exited", code=1), fact("cause", text=LOST_PEER)]), "end": RESET_END}
KILLED: Any = because([fact("killed", signal=9)])
DRAINED = because([fact("drained", host="gpu-1", by="anna@desk")])
STALLED = because([fact("stalled", seconds=300.0)])
CANNOT_RUN = because([fact("cannot_run", what="python", text="No such file or directory")])
ENDING: Any = {**because([fact("ending")]), "asked": True}
DAMAGE: Any = because([fact("said", text="state.json was damaged")])
FAILS = moved(20, "running", "backoff", **EXIT)
FAILED = "worker:0 attempt 1 on gpu-1 ran 9s, exit code 1 (KeyError: 'x'), to be restarted"

STORIES: dict[str, tuple[list[HistoryEvent], list[str]]] = {
    "from its start to its end": (
        [*begun(10), moved(261, "running", "backoff", **EXIT), *begun(262, 2), moved(270, "running", "succeeded", 2)],
        [
            "worker:0 attempt 1 on gpu-1 ran 4m10s, exit code 1 (KeyError: 'x'), restarted",
            "worker:0 attempt 2 on gpu-1 ran 7s, succeeded",
        ],
    ),
    "one that a drain has ended": (
        [*begun(10), moved(20, "running", "pending", **DRAINED)],
        ["worker:0 attempt 1 on gpu-1 ran 9s, gpu-1 is drained by anna@desk"],
    ),
    "a killed task comes before those that lost their connection by it": (
        [
            *begun(10),
            *begun(10, task="ps:0"),
            moved(20.0, "running", "backoff", **RESET),
            decided(20.05, "worker:0 is restarted"),
            moved(19.9, "running", "backoff", task="ps:0", **KILLED),
        ],
        [
            "ps:0 attempt 1 on gpu-1 ran 8s, killed by SIGKILL, to be restarted",
            "worker:0 attempt 1 on gpu-1 ran 9s, exit code 1 (ConnectionResetError: [Errno 104] Connection reset), "
            "to be restarted",
            "worker:0 is restarted",
        ],
    ),
    "what is no attempt stands where it stood": (
        [*begun(10), decided(12, "a decision"), FAILS, decided(19.9, "it is restarted")],
        ["a decision", FAILED, "it is restarted"],
    ),
    "a cause that is reported late stands before its effects": (
        [*begun(10), decided(12, "before"), decided(25, "the gang is restarted"), FAILS],
        ["before", FAILED, "the gang is restarted"],
    ),
    "one that runs stands where it began": (
        [*begun(10), decided(12, "a decision"), moved(13, "pending", "starting", 1, "worker:1")],
        ["worker:0 attempt 1 on gpu-1 runs", "a decision", "worker:1 attempt 1 on gpu-1 starts"],
    ),
    "one that stalled ran until it was ended": (
        [*begun(10), moved(311, "running", "stalled", **STALLED), moved(312, "stalled", "backoff", **STALLED)],
        ["worker:0 attempt 1 on gpu-1 ran 5m1s, stalled: no sign of progress for 5 min, to be restarted"],
    ),
    "one that never ran": (
        [moved(10, "pending", "starting"), moved(11, "starting", "failed", **CANNOT_RUN)],
        ["worker:0 attempt 1 on gpu-1 did not run, cannot run python: No such file or directory, failed"],
    ),
    "its end and the next one are seen at once": (
        [
            *begun(10),
            moved(20, "running", "starting", 2, **RESTART),
            moved(21, "starting", "running", 2),
            *begun(15, task="worker:1"),
        ],
        [
            "worker:1 attempt 1 on gpu-1 runs",
            "worker:0 attempt 1 on gpu-1 ran 9s, restarted",
            "worker:0 attempt 2 on gpu-1 runs",
        ],
    ),
    "it moved, and its end was not seen": (
        [*begun(10), moved(20, "pending", "starting", 2, host="gpu-2", **RESTART)],
        ["worker:0 attempt 1 on gpu-1 ran 9s, restarted", "worker:0 attempt 2 on gpu-2 starts: restart"],
    ),
    "the end of a wait is no attempt": (
        [*begun(10), FAILS, moved(25, "backoff", "failed", **EXIT)],
        [FAILED, "worker:0 on gpu-1 backoff -> failed: exit code 1 (KeyError: 'x')"],
    ),
    "the end of one that never began": ([moved(10, "pending", "stopped")], ["worker:0 on gpu-1 pending -> stopped"]),
    "damage is shown by itself, and that it was asked to end with its end": (
        [
            *begun(10),
            moved(19, "running", "running", **ENDING),
            moved(19, "running", "running", **DAMAGE),
            moved(20, "running", "stopped"),
        ],
        ["worker:0 on gpu-1 running: state.json was damaged", "worker:0 attempt 1 on gpu-1 ran 9s, stopped"],
    ),
}


@pytest.mark.parametrize(("events", "shown"), STORIES.values(), ids=STORIES)
def test_attempts_are_one_line_each(events: list[HistoryEvent], shown: list[str]) -> None:
    assert attempts_shown(*events) == shown


@pytest.mark.parametrize(
    ("after", "why", "expected"),
    [
        ("failed", EXIT, "ran 9s, exit code 1 (KeyError: 'x'), failed"),
        ("stopped", because([fact("stopped_by", by="me@desk")]), "ran 9s, stopped by me@desk"),
        ("stopped", because([fact("run_succeeded")]), "ran 9s, stopped: the run has succeeded"),
        ("stopped", because([]), "ran 9s, stopped"),
        ("pending", because([fact("restarted_with", task="ps:0"), fact("killed", signal=9)]),
         "ran 9s, restarted with ps:0 (killed by SIGKILL)"),
        ("pending", RESTART, "ran 9s, restarted"),
        ("succeeded", because([fact("exited", code=0)]), "ran 9s, succeeded"),
    ],
)  # fmt: skip
def test_each_end_of_an_attempt_is_described(after: str, why: Any, expected: str) -> None:
    assert attempts_shown(*begun(10), moved(20, "running", after, **why)) == [f"worker:0 attempt 1 on gpu-1 {expected}"]


def test_following_shows_an_attempt_at_its_end() -> None:
    folding = Folding()
    seen = [list(folding.take(one)) for one in [*begun(10), FAILS]]
    assert seen[:2] == [[], []]
    (entry,) = seen[2]
    assert isinstance(entry, Attempted)
    assert history_line(entry).endswith(", to be restarted")
    assert folding.rest() == []


def test_a_warning_is_news_of_a_run_that_continues_and_part_of_the_result_after_it() -> None:
    text = "the last step in the logs is 4, short of the 100 that were asked for"
    view = {**viewed(time=1000.0), "run": "demo-1", "hosts": {}, "alerts": [{"why": said(text)}]}
    ended = {**view, "condition": {**view["condition"], "type": "Succeeded"}}
    assert f"warning: {text}" in news(None, Coordination(checked(RunView, view), {}))
    assert not any("warning" in line for line in news(None, Coordination(checked(RunView, ended), {})))


def test_times_of_lines_do_not_go_back_by_less_than_clocks_differ() -> None:
    events = [
        checked(HistoryEvent, {**line(0, 1000.0), "kind": "request", "task": None}),
        checked(HistoryEvent, line(1, 1001.0, to="running")),
        checked(HistoryEvent, line(2, 1010.4, **{"from": "running", "to": "stopped"}, host="a")),
        checked(
            HistoryEvent, {**line(3, 1009.6), "kind": "condition", "from": "Running", "to": "Stopped", "host": None}
        ),
    ]
    folding, ordering = Folding(), Ordering()
    followed = [ordering.take(entry) for one in events for entry in folding.take(one)]
    times = [one.time if isinstance(one, Attempted) else one["time"] for one in folded(events)]
    assert times == sorted(times)
    assert times[-1] == 1010.4, "that of the line before it, by whose host's clock it was later"
    assert [one.time if isinstance(one, Attempted) else one["time"] for one in followed] == times


def test_a_cause_is_told_in_full_once() -> None:
    why = [fact("exited", code=1), fact("cause", text="ValueError: shape (40,) does not match (41,)")]
    attempts = [Attempted(f"worker:{n}", "a", 1, 10.0, 5.0, "failed", tuple(why)) for n in range(2)]
    condition = checked(HistoryEvent, line(0, 1000.0, kind="condition", to="Failed", why=why))
    told = Told()
    events: list[HistoryEvent | Attempted] = [*attempts, condition]
    lines = [history_line(one, told) for one in events]
    assert [one.count("shape (40,) does not match") for one in lines] == [1, 0, 0]
    assert all("the same ValueError" in one for one in lines[1:])
