"""One hook, with a receiver in a test's hands; and the events of a run, as cluster.json says them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from dtctl.agent.hooks import posting as module
from dtctl.agent.hooks.posting import MOST_WAITING, Hook
from dtctl.agent.records.hooks import Delivered, Post, Sent
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import Fact, because, fact, sentence
from dtctl.agent.records.run_state import Past
from dtctl.agent.records.whole_run import Condition, RunView
from dtctl.agent.run import run_events
from dtctl.agent.run.run_events import RunEvent, events_of, payload
from dtctl.agent.run.runfiles import RunFiles
from tests.reasons import reason_of
from tests.unit.coordinated import incident, viewed

TAKEN = made(Sent)
GONE = made(Sent, problem="answer", text="404 Not Found")
BUSY = made(Sent, problem="answer", text="503 Busy", again=True)


class Receiver:
    """In place of senders: answers when a test says so."""

    def __init__(self) -> None:
        self.received: list[str] = []
        self.ids: list[str] = []
        self.answer: Sent | None = TAKEN
        self.ended = 0

    def __call__(self, post: Post, body: dict[str, Any], inherited: object, now: float) -> Receiver:
        self.received.append(body["id"].rpartition("/")[2])
        self.ids.append(body["id"])
        return self

    deadline = 1e9
    reader = 0

    def update(self, now: float) -> Sent | None:
        return self.answer

    def end(self) -> None:
        self.ended += 1


class Desk:
    def __init__(self, delivered: Delivered | None = None, **post: Any) -> None:
        hook = made(Post, **{"name": "slack", "on": ["restarting"], "url": "http://x/", "timeout_s": 1.0, **post})
        self.events: list[str] = []
        self.found: list[RunEvent] = []
        self.now = 100.0
        self.hook = Hook(hook, "demo", {}, delivered, self._tell)

    def _tell(self, why: list[Fact]) -> None:
        self.events.append(sentence(why))

    def happens(self, *names: str, kind: str = "restarting") -> None:
        for name in names:
            why = [fact("exited", code=1)]
            self.found.append(RunEvent("r", name, (kind,), self.now, "Restarting", why, "worker:0", "a", 1))

    def runs(self, seconds: float = 1.0) -> None:
        until = self.now + seconds
        while self.now < until:
            self.hook.step(self.found, self.now)
            self.hook.begin(self.now)
            self.now += 0.25


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    made = Receiver()
    monkeypatch.setattr(module, "Delivery", made)
    return made


MANY = [str(number) for number in range(MOST_WAITING + 7)]


@pytest.mark.parametrize(
    ("answer", "names", "kind", "received", "said"),
    [
        (TAKEN, ["1", "2", "3"], "restarting", ["1", "2", "3"], ""),
        (TAKEN, ["1"], "recovered", [], ""),
        (
            BUSY,
            ["1", "2"],
            "restarting",
            ["1"] * 4 + ["2"] * 4,
            "did not receive the message: it answers 503 Busy (tried 4 times)",
        ),
        (GONE, ["1"], "restarting", ["1"], "did not receive the message: it answers 404 Not Found"),
        (TAKEN, MANY, "restarting", MANY[7:], "is behind: it does not receive the oldest 7 events"),
    ],
    ids=["once and in order", "not asked for", "tried again, reported once", "refused for good", "too many"],
)
def test_events_are_posted_in_order_and_failures_reported_once(
    receiver: Receiver, answer: Sent, names: list[str], kind: str, received: list[str], said: str
) -> None:
    desk = Desk()
    receiver.answer = answer
    desk.happens(*names, kind=kind)
    desk.runs(120)
    assert receiver.received == received
    assert desk.events == ([f"hook slack {said}"] if said else [])
    assert desk.hook.settled


def test_recovery_of_a_hook_and_its_next_failure_are_reported(receiver: Receiver) -> None:
    desk = Desk()
    for answer, name in ((GONE, "1"), (TAKEN, "2"), (GONE, "3")):
        receiver.answer = answer
        desk.happens(name)
        desk.runs()
    assert [text.partition(": ")[0] for text in desk.events] == [
        "hook slack did not receive the message",
        "hook slack receives messages again",
        "hook slack did not receive the message",
    ]


def test_a_new_coordinator_continues_where_the_last_one_was_killed(receiver: Receiver) -> None:
    receiver.answer = None
    desk = Desk()
    desk.happens("1", "2")
    desk.runs()
    assert receiver.received == ["1"]
    left = cast("Delivered", dict(desk.hook.record))  # as it is on the disk
    assert left["tries"] == 1
    receiver.answer = TAKEN
    again = Desk(left)
    again.found = desk.found
    again.runs(5)
    assert receiver.received == ["1", "1", "2"]


def test_posts_are_limited_across_coordinator_restarts(receiver: Receiver) -> None:
    delivered: Delivered | None = None
    receiver.answer = None
    for _ in range(10):
        desk = Desk(delivered)
        desk.happens("1")
        desk.hook.step(desk.found, desk.now)
        delivered = desk.hook.record
        desk.hook.begin(desk.now)  # and is killed
    receiver.answer = BUSY
    desk = Desk(delivered)
    desk.happens("1")
    desk.runs(60)
    assert desk.hook.settled
    assert len(receiver.received) <= 11


def test_unsent_events_at_the_end_of_the_run_are_reported(receiver: Receiver) -> None:
    desk = Desk()
    receiver.answer = None
    desk.happens("1", "2")
    desk.runs()
    assert not desk.hook.settled
    assert desk.hook.give_up()
    assert desk.hook.settled
    assert receiver.ended == 1
    assert desk.events == ["hook slack did not receive the message: no answer before the end of the run"]


def test_a_post_that_cannot_start_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Delivery", Mock(side_effect=OSError(11, "Resource temporarily unavailable")))
    desk = Desk()
    desk.happens("1")
    desk.runs(60)
    assert desk.events == ["hook slack did not receive the message: Resource temporarily unavailable (tried 4 times)"]


def view(**fields: Any) -> RunView:
    return cast("RunView", viewed(**fields))


def ended(kind: str, *why: Fact, cause: str | None = None, **fields: Any) -> RunView:
    condition = made(Condition, type=kind, cause=cause, since=1020.0, **because(why), **fields)
    return cast("RunView", {**viewed(phase="ended"), "condition": condition})


def names(found: list[RunEvent]) -> list[tuple[str, ...]]:
    return [one.kinds for one in found]


def test_loss_and_recovery_are_separate_events() -> None:
    lost, back = events_of(view(incidents=[incident()]))
    assert (lost.kinds, lost.time, lost.task, lost.host, lost.attempt) == (("restarting",), 1002.0, "ps:1", "b", 1)
    assert (back.kinds, back.time, back.condition) == (("recovered",), 1011.4, "Running")
    assert reason_of(payload(back, "digits", "")) == "back to step 1000, 237 steps lost; training again after 9.4 s"


@pytest.mark.parametrize(
    ("loss", "kinds"),
    [
        ("hung", ("stalled", "restarting")),
        ("still_silent", ("stalled", "restarting")),
        ("never_began", ("stalled", "restarting")),
        ("exit", ("restarting",)),
        ("moved", ("restarting",)),
    ],
)
def test_a_hang_posts_stalled_and_restarting(loss: str, kinds: tuple[str, ...]) -> None:
    found = events_of(view(incidents=[incident(recovered=None, loss=loss)]))
    assert names(found) == [kinds]


def test_task_lost_twice_is_reported_twice_and_so_is_a_cause_found_later() -> None:
    found = events_of(
        view(
            incidents=[
                incident(recovered=None, attempt=1),
                incident(recovered=None, attempt=2, noticed=1003.0),
                incident(recovered=None, attempt=2, noticed=1004.0, loss="still_silent"),
            ]
        )
    )
    assert len({one.id for one in found}) == 3


@pytest.mark.parametrize("kind", ["Succeeded", "Failed", "Stopped"])
def test_the_end_is_reported_when_it_is_certain(kind: str) -> None:
    over = ended(kind, fact("said", text="so"), cause="worker:0")
    [end] = events_of(over)
    assert (end.kinds, end.time, end.is_end) == ((kind.lower(),), 1020.0, True)
    assert (end.host, end.attempt) == ("c", 1)
    over["phase"] = "running"  # a task that decides was stopped, and may be started again
    assert events_of(over) == []


def test_a_run_that_failed_as_it_hung_is_reported_to_those_who_ask_for_stalls() -> None:
    [end] = events_of(ended("Failed", fact("task_failed", task="worker:0"), hung=True))
    assert end.kinds == ("failed", "stalled")


def test_event_id_is_independent_of_the_reporting_host() -> None:
    [end] = events_of(ended("Failed", fact("said", text="so"), cause="worker:0"))
    alone = run_events.ended("digits-1", "Failed", [fact("said", text="so")], "worker:0", 5.0)
    assert end.id == alone.id == "digits-1/failed"


def test_a_payload_has_the_cause_and_the_next_command() -> None:
    why = [fact("task_failed", task="worker:0"), fact("exited", code=1), fact("cause", text="KeyError: 'x'")]
    over = ended("Failed", *why, cause="worker:0")
    state = over["hosts"]["c"]["state"]
    assert state is not None
    lost = made(Past, attempt=1, started=0.0, ended=1.0, asked=False, code=1, cause="KeyError: 'x'")
    state["tasks"]["worker:0"]["history"] = [lost]
    [end] = events_of(over)
    body = payload(end, "digits", "2026-01-01T00:00:00.000Z")
    assert body["apiVersion"] == "dtctl/v1"
    assert (body["event"], body["condition"], body["task"], body["cause"]) == (
        "failed",
        "Failed",
        "worker:0",
        "KeyError: 'x'",
    )
    assert reason_of(body) == "worker:0 failed: exit code 1 (KeyError: 'x')"
    assert body["next"] == "dtctl logs worker:0 --run digits-1"
    assert body["text"] == f"digits has failed: {reason_of(body)}\n{body['next']}"


def test_log_text_in_a_post_contains_no_mention_and_no_newline() -> None:
    text = "bad <!channel> \x1b[2J\n<https://evil|here> @here @everyone" + "x" * 5000
    [end] = events_of(ended("Failed", fact("said", text=text)))
    line, _, then = payload(end, "digits", "")["text"].rpartition("\n")
    assert then == "dtctl status --run digits-1"
    assert not set("<>\x1b\n") & set(line)
    assert "@here" not in line
    assert len(line) <= 1000


def test_facts_that_are_too_long_for_a_post_are_left_out() -> None:
    [end] = events_of(ended("Failed", *[fact("said", text="x" * 4000) for _ in range(10)]))
    assert payload(end, "digits", "")["why"] == []


def test_every_kind_of_event_has_a_text() -> None:
    from dtctl.agent.records.hooks import EVENTS

    assert set(run_events.TEXTS) == set(run_events.NEXT) == set(EVENTS)


def test_a_coordinator_that_was_elected_sends_again_only_what_may_have_been_left(
    receiver: Receiver, tmp_path: Path
) -> None:
    files = RunFiles(str(tmp_path))
    post = made(Post, name="slack", on=["restarting"], url="http://x/", timeout_s=1.0)
    for name, value in (("environ.json", {}), ("hooks.json", {"posts": [post]})):
        (tmp_path / name).write_text(json.dumps(value))
    losses = [incident(id=n, attempt=n, noticed=at, recovered=None) for n, at in ((1, 1000.0), (2, 1990.0))]
    view = cast(RunView, viewed(incidents=losses, time=2000.0))
    posting = module.Posting(files, "demo", lambda why: None)
    posting.take_over(view)
    for now in range(100, 110):
        posting.step(view, over=False, now=now)
    assert receiver.ids == ["digits-1/ps:1/2/exit"]


def test_nothing_is_sent_again_after_a_restart_however_many_tasks_were_lost(receiver: Receiver) -> None:
    many = [str(number) for number in range(3000)]
    desk = Desk()
    desk.happens(*many)
    desk.hook.pass_over(desk.found)
    again = Desk(checked(Delivered, json.loads(json.dumps(desk.hook.record))))
    again.happens(*many, "new")
    again.runs(5)
    assert receiver.received == ["new"]
    again.found = again.found[-10:]
    again.runs(1)
    assert again.hook.record["events"] == [one.id for one in again.found], "those that the run has forgotten"
