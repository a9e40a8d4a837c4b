"""Goodput as commands tell it: with the steps that were lost at the end, and with what would raise it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.reasons import fact
from dtctl.model import TaskId
from dtctl.operations.goodput import Gain, Goodput, Span, goodput_of, points_of, with_points, without_unsaved
from dtctl.operations.snapshot import Outcome
from dtctl.render.goodput import MEANINGS, PARTS, exact, gain_text, goodput_line, percent
from dtctl.render.machine.status import run_status
from dtctl.render.status import more_lines
from dtctl.rooms.metrics.operation import Point, Series
from tests.unit.coordinated import incident
from tests.unit.report.reports import account, status


def found(outcome: Outcome = Outcome.SUCCEEDED, **fields: Any) -> Goodput:
    goodput = goodput_of(status(outcome, **fields))
    assert goodput is not None
    assert sum(goodput.seconds.values()) == pytest.approx(goodput.elapsed_s) == 100.0
    assert sum(one.seconds for one in goodput.spans) == pytest.approx(100.0)
    return goodput


def test_the_parts_are_those_of_the_coordinators_account() -> None:
    goodput = found()
    seconds = {what: seconds for what, seconds in goodput.seconds.items() if seconds}
    assert seconds == {"kept": 50.0, "start": 17.0, "wait": 16.0, "again": 17.0}
    assert goodput.share == 0.5


@pytest.mark.parametrize(("outcome", "unsaved"), [(Outcome.FAILED, 5.0), (Outcome.STOPPED, 5.0), (Outcome.RUNNING, 0)])
def test_steps_after_the_last_checkpoint_of_a_run_that_failed_were_not_kept(outcome: Outcome, unsaved: float) -> None:
    assert found(outcome).seconds["unsaved"] == pytest.approx(unsaved)


def test_a_checkpoint_from_before_the_last_rollback_takes_all_of_the_last_steps() -> None:
    spans = [Span("start", 0, 5, 10), Span("kept", 5, 25, 30), Span("start", 25, 30, 20), Span("kept", 30, 40, 40)]
    cut = without_unsaved(spans, 15)
    assert [(one.what, one.seconds) for one in cut[-2:]] == [("kept", 0), ("unsaved", 10)]
    assert without_unsaved(spans, 40) == spans


def test_goodput_is_unknown_without_steps_or_coordinator() -> None:
    assert goodput_of(dataclasses.replace(status(), coordination=None)) is None
    assert goodput_of(status(account=None)) is None
    silent = {**account(), "reached": None}
    assert goodput_of(status(account=silent)) is None
    assert run_status(status(account=None))["goodput"] is None


def test_to_save_more_often_is_advised_where_it_saves_more_than_it_costs() -> None:
    long = {**account(), "seconds": 100.0}
    assert not any(one.kind == "save" for one in found(account=long).gains if one.to_s >= one.from_s)
    gain = next(one for one in found().gains if one.kind == "save")
    assert (gain.from_s, gain.to_s) == (20.0, 10.0)
    assert gain.share == pytest.approx(0.17 * 0.5 - 0.2 * (1 / 10 - 1 / 20))
    assert gain_text(gain) == "a checkpoint every 10s in place of 20s: 7.5 % more"


def test_checkpoints_are_advised_where_steps_are_done_again_and_there_is_none() -> None:
    bare = dataclasses.replace(status(Outcome.RUNNING), checkpoints=())
    goodput = goodput_of(bare)
    assert goodput is not None
    assert [gain_text(one) for one in goodput.gains] == ["checkpoints to go back to (none was found): up to 17 % more"]


def test_what_losses_of_a_task_cost_is_reported() -> None:
    lost = incident("worker:0", host="c", noticed=1062.0)
    gain = next(one for one in found(incidents=[lost]).gains if one.kind == "losses")
    assert gain.task == TaskId("worker", 0)
    assert gain.share == pytest.approx(0.06 + 0.07 + 0.15)
    assert gain_text(gain) == "the restart of worker:0 cost 28 %"


def test_a_shorter_limit_is_advised_where_hangs_are_noticed_late() -> None:
    stalled = account()
    stalled["spans"][4]["what"] = "stall"  # 2 s between the last step and the loss
    stalled.update(seconds=1098.0, gap_s=1.0)
    stalled["spans"] = [{**one, "end_s": one["end_s"] + (998.0 if index > 3 else 0)} for index, one in
                        enumerate(stalled["spans"])]  # fmt: skip
    hung = incident("worker:0", host="c", noticed=2000.0, why=[fact("stalled", seconds=900.0)])
    goodput = goodput_of(status(Outcome.RUNNING, account=stalled, incidents=[hung], time=2098.0))
    assert goodput is not None
    gain = next(one for one in goodput.gains if one.kind == "stall")
    assert gain.to_s == 30.0
    assert gain_text(gain).startswith("recovery.stall: 30s (a hang was noticed after 1")


def test_it_is_one_line_of_status_and_a_field_of_its_json() -> None:
    shown = [line for line in more_lines(status(Outcome.RUNNING)) if "goodput" in line]
    assert shown == [
        "goodput 50 %: startup 17 %, repeated steps 17 %, waiting 16 %; "
        "a checkpoint every 10s in place of 20s: 7.5 % more"
    ]
    document = run_status(status(Outcome.RUNNING))["goodput"]
    assert (document["share"], document["elapsedSeconds"], document["seconds"]["again"]) == (0.5, 100.0, 17.0)
    assert document["gains"][0]["kind"] == "save"
    assert goodput_line(found()) == shown[0]


def test_every_part_has_a_name_and_a_meaning() -> None:
    assert PARTS.keys() == MEANINGS.keys() == found().seconds.keys()


def test_numbers_read_as_people_write_them() -> None:
    assert [percent(share) for share in (0, 0.004, 0.05, 0.123, 1)] == ["0 %", "under 1 %", "5 %", "12 %", "100 %"]
    assert [exact(seconds) for seconds in (30, 60, 90, 600, 3600, 5400, 754)] == [
        "30s", "1m", "90s", "10m", "1h", "90m", "13m",
    ]  # fmt: skip
    several = Gain("losses", 0.04, task=TaskId("ps", 1), count=3)
    assert gain_text(several) == "the 3 restarts of ps:1 cost 4.0 %"


def test_steps_come_from_event_files_if_logs_have_none() -> None:
    silent = {**account(), "reached": None}
    silent["spans"] = [
        {"what": "wait", "end_s": 10.0, "step": None}, {"what": "start", "end_s": 60.0, "step": None},
        {"what": "wait", "end_s": 65.0, "step": None}, {"what": "start", "end_s": 100.0, "step": None},
    ]  # fmt: skip
    points = [Point(step, 1000.0 + at, 1.0) for step, at in ((0, 20), (1, 30), (2, 50), (3, 70), (4, 80), (5, 95))]
    goodput = goodput_of(status(Outcome.SUCCEEDED, account=silent), points)
    assert goodput is not None
    assert goodput.by_scalars
    seconds = {what: seconds for what, seconds in goodput.seconds.items() if seconds}
    assert seconds == {"wait": 15.0, "start": 15.0, "kept": 55.0, "again": 10.0, "end": 5.0}
    assert goodput_of(status(Outcome.SUCCEEDED, account=silent), []) is None


@pytest.mark.parametrize(
    ("outcome", "at", "what"),
    [
        (Outcome.RUNNING, 90, "kept"), (Outcome.FAILED, 90, "unsaved"), (Outcome.STOPPED, 90, "kept"),
        (Outcome.RUNNING, 40, "stall"), (Outcome.FAILED, 40, "stall"),
    ],
)  # fmt: skip
def test_the_time_after_the_last_point_is_judged_by_the_outcome(outcome: Outcome, at: float, what: str) -> None:
    points = [Point(step, 1000.0 + step, 0.0) for step in range(10, int(at) + 1)]
    spans = with_points([Span("start", 0, 100)], points, 1000.0, outcome)
    assert spans[-1].what == what
    assert sum(one.seconds for one in spans) == 100


def test_the_points_are_those_of_the_fullest_series() -> None:
    points = (Point(2, 9.0, 1.0), Point(1, 5.0, 1.0))
    several = [Series("a", ".", "c", "/o", points[:1], 1), Series("b", ".", "c", "/o", points, 2)]
    assert [point.step for point in points_of(several)] == [1, 2]
    assert points_of([]) == []
