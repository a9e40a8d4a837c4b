"""One hook, with a receiver in a test's hands: what is told, how often, and what the run's story says of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dtctl.agent.hooks import posting as module
from dtctl.agent.hooks.posting import MOST_WAITING, Hook
from dtctl.agent.records.hooks import Post, Sent, Told
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import Fact, fact, sentence
from dtctl.agent.run.run_events import RunEvent

TAKEN = made(Sent)
GONE = made(Sent, problem="answer", text="404 Not Found")
BUSY = made(Sent, problem="answer", text="503 Busy", again=True)


class Receiver:
    """In place of senders: answers when a test says so."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answer: Sent | None = TAKEN
        self.ended = 0

    def __call__(self, post: Post, body: dict[str, Any], inherited: object, now: float) -> Receiver:
        self.told.append(body["id"].rpartition("/")[2])
        return self

    deadline = 1e9
    reader = 0

    def look(self, now: float) -> Sent | None:
        return self.answer

    def end(self) -> None:
        self.ended += 1


class Desk:
    def __init__(self, told: Told | None = None, **post: Any) -> None:
        said = made(Post, **{"name": "slack", "on": ["restarting"], "url": "http://x/", "timeout_s": 1.0, **post})
        self.story: list[str] = []
        self.found: list[RunEvent] = []
        self.now = 100.0
        self.hook = Hook(said, "demo", {}, told, self._tell)

    def _tell(self, why: list[Fact]) -> None:
        self.story.append(sentence(why))

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


def test_each_thing_is_told_once_and_in_order(receiver: Receiver) -> None:
    desk = Desk()
    desk.happens("1", "2", "3")
    desk.runs(5)
    assert receiver.told == ["1", "2", "3"]
    assert desk.hook.settled
    assert desk.story == []


def test_only_what_was_asked_for_is_told(receiver: Receiver) -> None:
    desk = Desk()
    desk.happens("1", kind="recovered")
    desk.runs()
    assert receiver.told == []
    assert desk.hook.settled


def test_what_may_be_taken_later_is_tried_a_few_times_and_told_of_once(receiver: Receiver) -> None:
    desk = Desk()
    receiver.answer = BUSY
    desk.happens("1")
    desk.runs(60)
    assert receiver.told == ["1"] * 4
    assert desk.story == ["hook slack did not receive the message: it answers 503 Busy (tried 4 times)"]
    desk.happens("2")
    desk.runs(60)
    assert receiver.told[4:] == ["2"] * 4
    assert len(desk.story) == 1


def test_what_is_refused_for_good_is_tried_once(receiver: Receiver) -> None:
    desk = Desk()
    receiver.answer = GONE
    desk.happens("1")
    desk.runs(60)
    assert receiver.told == ["1"]
    assert desk.story == ["hook slack did not receive the message: it answers 404 Not Found"]


def test_one_that_works_again_is_told_of_and_so_is_its_next_failure(receiver: Receiver) -> None:
    desk = Desk()
    for answer, name in ((GONE, "1"), (TAKEN, "2"), (GONE, "3")):
        receiver.answer = answer
        desk.happens(name)
        desk.runs()
    assert [text.partition(": ")[0] for text in desk.story] == [
        "hook slack did not receive the message",
        "hook slack can be told again",
        "hook slack did not receive the message",
    ]


def test_a_new_coordinator_goes_on_where_the_last_one_was_killed(receiver: Receiver) -> None:
    receiver.answer = None
    desk = Desk()
    desk.happens("1", "2")
    desk.runs()
    assert receiver.told == ["1"]
    left = cast("Told", dict(desk.hook.record))  # as it is on the disk
    assert left["tries"] == 1
    receiver.answer = TAKEN
    again = Desk(left)
    again.found = desk.found
    again.runs(5)
    assert receiver.told == ["1", "1", "2"]


def test_a_coordinator_that_is_killed_again_and_again_does_not_post_for_ever(receiver: Receiver) -> None:
    told: Told | None = None
    receiver.answer = None
    for _ in range(10):
        desk = Desk(told)
        desk.happens("1")
        desk.hook.step(desk.found, desk.now)
        told = desk.hook.record
        desk.hook.begin(desk.now)  # and is killed
    receiver.answer = BUSY
    desk = Desk(told)
    desk.happens("1")
    desk.runs(60)
    assert desk.hook.settled
    assert len(receiver.told) <= 11


def test_one_that_is_far_behind_is_not_told_of_the_oldest(receiver: Receiver) -> None:
    desk = Desk()
    desk.happens(*map(str, range(MOST_WAITING + 7)))
    desk.runs(60)
    assert receiver.told == [str(number) for number in range(7, MOST_WAITING + 7)]
    assert desk.story == ["hook slack is behind: it is not told of the oldest 7 events"]


def test_the_end_of_the_run_leaves_the_rest_untold_and_says_so(receiver: Receiver) -> None:
    desk = Desk()
    receiver.answer = None
    desk.happens("1", "2")
    desk.runs()
    assert not desk.hook.settled
    assert desk.hook.give_up()
    assert desk.hook.settled
    assert receiver.ended == 1
    assert desk.story == ["hook slack did not receive the message: no answer before the end of the run"]


def test_what_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(module, "Delivery", full)
    desk = Desk()
    desk.happens("1")
    desk.runs(60)
    assert desk.story == ["hook slack did not receive the message: Resource temporarily unavailable (tried 4 times)"]
