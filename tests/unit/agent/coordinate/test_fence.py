"""When a host that is cut off ends its tasks: what it knows of being heard, and what its next agent does."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.coordinate.election import LEASE_S
from dtctl.agent.coordinate.fence import DOUBT_S, PAUSE_S, PING_S, WRITE_S, Fence
from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Process
from dtctl.agent.records.spec import (
    DRIFT,
    ELECTION_S,
    FEWEST_VOTERS,
    HOLD_S,
    LEASED_S,
    fence_s,
    held_within_s,
    hold_s,
    inventory_of,
    shortest_replace_s,
)
from dtctl.agent.run.runfiles import RunFiles
from tests.unit.agent.coordinate.slots import on, with_spares

PLACES = {"chief:0": "a", "worker:0": "b"}
SPEC = on(with_spares("async-ps", PLACES, "s", grace_s=10.0, recovery={"replace_s": 100.0}), "b")
LIMIT_S = 65.0
"""100 s by a clock that is a quarter slower, less the grace period and 5 s for what is killed."""


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    files = RunFiles(str(tmp_path / "runs" / "demo-1" / "b"))
    files.begin(files.stage(SPEC, {}, {}, made(Process, **processes.myself())), SPEC)
    return files


GIVEN_UP = {"resizes": True, "recovery": {**SPEC["recovery"], "replace_s": None, "host_timeout_s": 100.0}}


@pytest.mark.parametrize(
    ("fields", "limit_s"),
    [
        ({}, LIMIT_S),
        ({"recovery": {**SPEC["recovery"], "replace_s": None}}, None),
        ({**GIVEN_UP, "min_workers": 2}, 65.0),  # the others train without them
        (GIVEN_UP, None),
        ({**GIVEN_UP, "min_workers": 2, "resizes": False}, None),
        ({"voters": SPEC["voters"][: FEWEST_VOTERS - 1]}, None),
        ({"recovery": {**SPEC["recovery"], "replace_s": 1.0}}, 0.0),
        ({"recovery": {**SPEC["recovery"], "replace_s": shortest_replace_s(10.0)}}, 30.0),
    ],
)
def test_only_where_others_may_take_them_tasks_end_and_not_in_an_election(fields: Any, limit_s: float | None) -> None:
    spec: Any = {**SPEC, **fields}
    assert fence_s(spec) == limit_s


def test_the_time_counts_from_when_an_answered_ping_was_sent(files: RunFiles) -> None:
    fence = Fence(files, SPEC, 1000.0)
    first = fence.ping(1000.0)
    assert first is not None
    assert fence.ping(1000.0 + PING_S - 0.1) is None
    second = fence.ping(1000.0 + PING_S)
    assert second is not None
    fence.answered(second + 1, 1060.0)
    fence.answered(first, 1060.0)
    assert fence.grace_s(1000.0 + LIMIT_S - 0.1) is None
    assert fence.grace_s(1000.0 + LIMIT_S) == 10.0
    fence.answered(second, 1064.0)
    assert fence.grace_s(1000.0 + LIMIT_S) is None
    assert fence.grace_s(1000.0 + PING_S + LIMIT_S) == 10.0


@pytest.mark.parametrize(("passed_s", "grace_s"), [(LIMIT_S + 4.0, 6.0), (75.0, 0.0), (5000.0, 0.0)])
def test_suspended_agent_gives_its_tasks_the_remaining_time(files: RunFiles, passed_s: float, grace_s: float) -> None:
    assert Fence(files, SPEC, 1000.0).grace_s(1000.0 + passed_s) == pytest.approx(grace_s, abs=1.0)


def test_next_agent_continues_the_count(files: RunFiles) -> None:
    fence = Fence(files, SPEC, 1000.0)
    for now in (1000.0 + WRITE_S, 1001.0 + WRITE_S):
        fence.confirm(now, now)
    assert Fence(files, SPEC, 1060.0).grace_s(1000.0 + WRITE_S + LIMIT_S) == 10.0
    assert Fence(files, SPEC, 1060.0).grace_s(1000.0 + WRITE_S + LIMIT_S - 0.1) is None
    assert Fence(files, SPEC, 900.0).grace_s(964.9) is None, "it is never later than now"


@pytest.mark.parametrize(
    ("text", "age_s", "ends"),
    [(None, 5.0, False), (None, 500.0, True), ("nonsense", 500.0, True), ("another-boot 5.0", 500.0, False)],
    ids=["a new run", "never written", "damaged", "the machine was restarted"],
)
def test_unwritten_confirmation_counts_from_the_start_of_the_run(
    files: RunFiles, text: str | None, age_s: float, ends: bool
) -> None:
    if text is not None:
        Path(files.path("confirmed")).write_text(text)
    then = time.time() - age_s
    os.utime(files.path("spec.json"), (then, then))
    assert (Fence(files, SPEC, 1000.0).grace_s(1000.0) is not None) is ends


def test_a_full_disk_makes_no_difference_to_this_agent(files: RunFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(paths, "write_text", full)
    fence = Fence(files, SPEC, 1000.0)
    fence.confirm(1050.0, 1050.0)
    assert fence.grace_s(1100.0) is None


def test_a_coordinator_counts_from_its_lease_and_not_from_one_that_may_have_slept(files: RunFiles) -> None:
    fence = Fence(files, SPEC, 1000.0)
    assert fence.look(True, 1001.0)
    assert not fence.look(False, 1002.0)
    assert fence.grace_s(1001.0 + LIMIT_S) == 10.0
    woken = 1003.0 + PAUSE_S
    assert not fence.look(True, woken)
    assert not fence.look(True, woken + PAUSE_S)
    assert fence.look(True, woken + DOUBT_S)


HOLDING: Any = {**SPEC, "hold_s": HOLD_S, "recovery": {**SPEC["recovery"], "replace_s": None}}
"""Nobody takes its tasks by itself, and a person may."""


@pytest.mark.parametrize(
    ("fields", "limit_s"),
    [({}, HOLD_S), ({"voters": SPEC["voters"][: FEWEST_VOTERS - 1]}, None), ({"hold_s": None}, None)],
    ids=["most voters answer whom they follow", "two hosts", "a run of an earlier dtctl"],
)
def test_tasks_are_held_only_where_a_majority_can_be_missed(fields: Any, limit_s: float | None) -> None:
    spec: Any = {**HOLDING, **fields}
    assert hold_s(spec) == limit_s
    assert inventory_of(spec)["hold_s"] == limit_s


def test_tasks_are_held_until_the_coordinator_answers_and_never_ended(files: RunFiles) -> None:
    fence = Fence(files, HOLDING, 1000.0)
    assert not fence.holds(1000.0 + HOLD_S - 0.1)
    assert fence.holds(1000.0 + HOLD_S)
    number = fence.ping(1000.0 + HOLD_S)
    assert number is not None
    assert fence.grace_s(9000.0) is None
    fence.answered(number, 9000.0)
    assert fence.holds(9000.0), "it was sent long ago"
    number = fence.ping(9000.0)
    assert number is not None
    fence.answered(number, 9000.1)
    assert not fence.holds(9000.1)


def test_tasks_of_a_run_that_ended_during_the_cut_have_no_more_time_than_before(files: RunFiles) -> None:
    fence = Fence(files, HOLDING, 1000.0)
    number = fence.ping(1020.0)
    assert number is not None
    fence.close()
    fence.answered(number, 1020.1)
    assert not fence.holds(1000.0 + HOLD_S - 0.1)
    assert fence.holds(1000.0 + HOLD_S)


def test_an_election_holds_no_healthy_run_and_a_lost_lease_is_waited_for() -> None:
    assert HOLD_S >= ELECTION_S
    assert LEASED_S >= LEASE_S * DRIFT
    assert held_within_s(HOLD_S) > HOLD_S * DRIFT
