"""How long a trainer makes no step while it writes: what a checkpoint costs."""

from __future__ import annotations

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.run_state import Entry, State
from dtctl.agent.rooms.speed import saving
from dtctl.agent.rooms.speed.saving import Saving

Look = tuple[int, float, float]
"""A step, the seconds since the look before, and the megabytes that were written meanwhile."""


def stood(monkeypatch: pytest.MonkeyPatch, *looks: Look) -> float | None:
    written = 0.0
    monkeypatch.setattr(saving, "written_bytes", lambda pid: int(written * 1e6))
    state = made(State, run="r", host="h", tasks={"worker:0": made(Entry, pid=7, start_time=1)})
    entry = state["tasks"]["worker:0"]
    found, at = Saving(), 0.0
    for step, passed_s, megabytes in looks:
        at, written = at + passed_s, written + megabytes
        if step != entry["step"]:
            entry.update({"step": step, "step_time": 1e9 + at})
        found.look(at, state)
    return found.taken("worker:0")


STEADY: list[Look] = [(10 * number, 1.0, 0.0) for number in range(1, 6)]


def test_the_time_of_a_save_counts_less_that_of_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    save: list[Look] = [(50, 1.0, 90.0), (50, 1.0, 90.0), (50, 1.0, 90.0), (60, 1.5, 10.0)]
    assert stood(monkeypatch, *STEADY, *save) == pytest.approx(3.5)


@pytest.mark.parametrize(
    "looks",
    [
        [(50, 1.0, 0.0), (50, 2.0, 0.1), (60, 1.0, 0.0)],  # it waits, and writes only its log
        [(60, 1.0, 90.0), (70, 1.0, 90.0)],  # it writes in the background
        [(60, 1.2, 90.0)],  # shorter than what can be seen
    ],
)
def test_what_no_save_holds_up_does_not_count(monkeypatch: pytest.MonkeyPatch, looks: list[Look]) -> None:
    assert stood(monkeypatch, *STEADY, *looks) == 0.0


def test_slow_steps_are_not_taken_for_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[Look] = [(number, 30.0, 0.0) for number in range(1, 5)]
    assert stood(monkeypatch, *slow, (5, 33.0, 50.0)) == 0.0
    assert stood(monkeypatch, *slow, (5, 90.0, 50.0)) == pytest.approx(60.0)


def test_a_task_without_steps_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "written_bytes", lambda pid: 0)
    found = Saving()
    found.look(1.0, made(State, run="r", host="h", tasks={"ps:0": made(Entry, pid=7, start_time=1)}))
    assert found.taken("ps:0") is None
