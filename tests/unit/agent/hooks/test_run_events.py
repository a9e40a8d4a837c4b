"""What is told of a run, as cluster.json says it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dtctl.agent.records.reasons import Fact, because, fact
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run import run_events
from dtctl.agent.run.run_events import RunEvent, events_of, payload
from tests.unit.coordinated import incident, told


def view(**fields: Any) -> RunView:
    return cast("RunView", told(**fields))


def ended(kind: str, *why: Fact, cause: str | None = None) -> RunView:
    condition = {"type": kind, "cause": cause, "since": 1020.0, **because(why)}
    return cast("RunView", {**told(phase="ended"), "condition": condition})


def names(found: list[RunEvent]) -> list[tuple[str, ...]]:
    return [one.kinds for one in found]


def test_a_loss_and_its_recovery_are_told_each_at_its_time() -> None:
    lost, back = events_of(view(incidents=[incident()]))
    assert (lost.kinds, lost.time, lost.task, lost.host, lost.attempt) == (("restarting",), 1002.0, "ps:1", "b", 1)
    assert (back.kinds, back.time, back.condition) == (("recovered",), 1011.4, "Running")
    assert payload(back, "digits", "")["reason"] == "back to step 1000, 237 steps lost; training again after 9.4 s"


@pytest.mark.parametrize(
    ("why", "kinds"),
    [
        (fact("stalled", seconds=300.0), ("stalled", "restarting")),
        (fact("frozen", seconds=30.0), ("stalled", "restarting")),
        (fact("still_silent"), ("stalled", "restarting")),
        (fact("exited", code=1), ("restarting",)),
    ],
)
def test_what_hung_is_stalled_and_restarting_at_once(why: Fact, kinds: tuple[str, ...]) -> None:
    found = events_of(view(incidents=[incident(recovered=None, **because([why]))]))
    assert names(found) == [kinds]


def test_a_task_that_is_lost_twice_is_told_twice_and_a_culprit_that_is_found_later_too() -> None:
    found = events_of(
        view(
            incidents=[
                incident(recovered=None, attempt=1),
                incident(recovered=None, attempt=2, noticed=1003.0),
                incident(recovered=None, attempt=2, noticed=1004.0, **because([fact("still_silent")])),
            ]
        )
    )
    assert len({one.id for one in found}) == 3


@pytest.mark.parametrize("kind", ["Succeeded", "Failed", "Stopped"])
def test_the_end_is_told_when_it_is_certain(kind: str) -> None:
    over = ended(kind, fact("said", text="so"), cause="worker:0")
    [end] = events_of(over)
    assert (end.kinds, end.time, end.is_end) == ((kind.lower(),), 1020.0, True)
    assert (end.host, end.attempt) == ("c", 1)
    over["phase"] = "running"  # a task that decides was stopped, and may be started again
    assert events_of(over) == []


def test_a_run_that_failed_as_it_hung_is_told_to_those_who_ask_for_stalls() -> None:
    [end] = events_of(ended("Failed", fact("task_failed", task="worker:0"), fact("stalled", seconds=300.0)))
    assert end.kinds == ("failed", "stalled")


def test_what_is_told_has_the_same_id_whoever_tells_it() -> None:
    [end] = events_of(ended("Failed", fact("said", text="so"), cause="worker:0"))
    alone = run_events.ended("digits-1", "Failed", [fact("said", text="so")], "worker:0", 5.0)
    assert end.id == alone.id == "digits-1/failed"


def test_a_payload_has_the_cause_and_the_next_command() -> None:
    why = [fact("task_failed", task="worker:0"), fact("exited", code=1), fact("cause", text="KeyError: 'x'")]
    [end] = events_of(ended("Failed", *why, cause="worker:0"))
    body = payload(end, "digits", "2026-01-01T00:00:00.000Z")
    assert body["apiVersion"] == "dtctl/v1"
    assert (body["event"], body["condition"], body["task"], body["cause"]) == (
        "failed",
        "Failed",
        "worker:0",
        "KeyError: 'x'",
    )
    assert body["reason"] == "worker:0 failed: exit code 1 (KeyError: 'x')"
    assert body["next"] == "dtctl logs worker:0 --run digits-1"
    assert body["text"] == f"digits has failed: {body['reason']}\n{body['next']}"


def test_what_a_log_holds_calls_nobody_and_stays_on_its_line() -> None:
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


def test_every_kind_of_event_has_its_words() -> None:
    from dtctl.agent.records.hooks import EVENTS

    assert set(run_events.TEXTS) == set(run_events.NEXT) == set(EVENTS)
