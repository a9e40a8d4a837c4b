"""`dtctl top`: the lines above its table, and the table: sorted, filtered, folded, and in as many columns as fit."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.reasons import because, said
from dtctl.agent.records.whole_run import RunView
from dtctl.errors import TransportError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Disconnected
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.render.findings import problem_lines
from dtctl.rooms.metrics.operation import Losses, Point, Series, rates_of
from dtctl.rooms.top.model import Choice, Histories, History, Snapshot
from dtctl.rooms.top.page import curves, page, problems, series_of, spread, wrapped
from dtctl.rooms.top.table import SORTED_BY, Row, layout, rows
from tests.unit.agent.poisons import left_in
from tests.unit.coordinated import incident, record, viewed
from tests.unit.render.test_safe_output import poisoned
from tests.unit.render.test_safe_output import run_status as any_status
from tests.unit.render.top.runs import NOW, USUAL, histories, joined, run_status, snapshot, task, training


def top_of(found: Snapshot, width: int = 100, height: int = 24) -> list[str]:
    return [joined(line) for line in page(found, Histories(), (), Choice(), (width, height)).top]


def test_the_summary_is_first_and_its_ages_grow() -> None:
    (line,) = top_of(snapshot())
    assert line == "digits-1: Running 1m40s · step 120/1000 · 5 steps/s · done in 2m56s · loss 0.7"
    later = dataclasses.replace(snapshot(), now=NOW + 40)
    assert top_of(later)[0].startswith("digits-1: Running 2m20s · step 120/1000 · last step 41s ago")


def test_a_training_run_has_no_problem_lines() -> None:
    assert problems(snapshot(), 10) == []


def test_the_first_failure_is_first_with_its_cause_and_the_next_command() -> None:
    failed = Verdict(Outcome.FAILED, tuple(said("ps:1 failed")), TaskId("ps", 1))
    lost = task("ps:1", "failed", host="b", why="ModuleNotFoundError: sklearn")
    found = snapshot(task("ps:0", "failed", why="lost its peer"), lost, training("worker:0"), verdict=failed)
    lines = [joined(line) for line in problems(found, 10)]
    assert lines[0] == "problem: ps:1: ModuleNotFoundError: sklearn"
    assert lines[1].startswith("  once, ps:1 on b, at ")
    assert lines[-2:] == ["ps:0 on host-0 (failed): lost its peer", "ending: worker:0"]


def test_worst_problem_is_shown_as_in_status() -> None:
    lost = task("worker:1", "backoff", host="b", why="ModuleNotFoundError: No module named 'sklearn'")
    found = snapshot(task("ps:0"), lost, training("worker:0"))
    problem = problem_lines(found.status)
    assert "No module named" in problem[0]
    lines = [joined(line) for line in problems(found, 10)]
    assert lines == problem, "no line of the task tells the same once more"
    assert top_of(found)[1 : 1 + len(problem)] == problem


def test_tasks_with_the_same_note_are_one_line() -> None:
    tasks = [task(f"worker:{index}", "failed", host=f"gpu-{index}", code=1) for index in range(1, 31)]
    line, *more = problems(snapshot(*tasks), 10)
    assert joined(line).startswith("problem: worker:[1-30] on gpu-[1-30] exited 1")
    assert "(failed)" not in "".join(map(joined, more))
    lost = [task(f"worker:{index}", "lost", host=f"gpu-{index}", why="gone") for index in range(1, 31)]
    assert (
        joined(problems(snapshot(*lost), 10)[-1]) == "worker:1, worker:2, worker:3, 27 more on gpu-[1-30] (lost): gone"
    )


def test_unreachable_hosts_are_shown_before_their_last_reports() -> None:
    away = Disconnected("c", TransportError("no route to c"))
    found = dataclasses.replace(snapshot(task("ps:0", "stalled", why="no step for 90 s")), broken={"c": away})
    assert [joined(line) for line in problems(found, 10)] == [
        "c cannot be asked: no route to c; tried again",
        "ps:0 on host-0 (stalled): no step for 90 s",
    ]


def test_waits_warnings_and_recoveries_of_the_coordinator_are_shown() -> None:
    waits_for = because(said("ps:1 is not there"))
    view = viewed(waits_for=waits_for, alerts=[{"why": said("odd")}], incidents=[incident(recovered=None)])
    coordination = Coordination.of(checked(RunView, view), record().roster)
    lines = [joined(line) for line in problems(snapshot(coordination=coordination), 10)]
    assert lines[0] == "waiting: ps:1 is not there"
    assert "killed by SIGKILL" in lines[1]
    assert lines[2] == "warning: odd"


def test_lines_without_room_are_counted() -> None:
    tasks = [task(f"worker:{index}", "stalled", why=f"no step for {index} s") for index in range(9)]
    every = problems(snapshot(*tasks), 100)
    lines = [joined(line) for line in problems(snapshot(*tasks), 3)]
    assert len(lines) == 3
    assert lines[-1] == f"and {len(every) - 2} more lines: dtctl status"


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (80, 24), (200, 60)])
def test_table_keeps_some_lines_and_fits_the_width_with_any_problems(size: tuple[int, int]) -> None:
    tasks = [task(f"worker:{index}", "failed", why=f"{index} " + "why " * 60) for index in range(20)]
    lines = top_of(snapshot(*tasks), *size)
    assert max(map(len, lines)) <= size[0]
    assert any("problem" in line for line in lines)
    if size[1] >= 24:
        assert len(lines) <= size[1] - 6


def test_lines_are_broken_at_blanks_and_long_words_anywhere() -> None:
    line = [("one two", "bold"), (" " + "x" * 25, "")]
    assert [joined(part) for part in wrapped(line, 10)] == ["one two ", *["  xxxxxxxx"] * 3, "  x"]
    assert wrapped([("short", "")], 10) == [[("short", "")]]


def test_curves_begin_with_top_or_with_the_run_if_there_are_event_files() -> None:
    seen = histories(*(_at(second, 1.0 / second, 10.0 + second) for second in range(1, 10)))
    found = snapshot(training("worker:0", loss="0.25", rate=12.5))
    assert joined(curves(series_of(found, seen, ()), 80)).startswith("loss 0.25 █")
    points = [Point(step, 10.0 * step, 5.0 - step) for step in range(5)]
    line = joined(curves(series_of(found, seen, points), 80))
    assert line.startswith("loss 0.25 █▇▅▃▁")
    assert "steps/s 12.5 ████" in line
    assert curves(series_of(found, Histories(), ()), 80) == []
    assert curves(series_of(found, seen, ()), 10) == []


def _at(second: float, loss: float, rate: float) -> RunStatus:
    lead = training("worker:0", int(second), step_time=NOW + second * 2, loss=str(loss), rate=rate)
    return run_status(lead)


def test_a_history_is_bounded_and_covers_the_whole_time() -> None:
    history = History(most=10)
    for second in range(1000):
        history.add(float(second), float(second))
    assert len(history.values) <= 10
    assert history.values[0] < 200
    assert history.values[-1] > 800


def test_curves_restart_with_another_run() -> None:
    first = run_status(training("worker:0"))
    other = dataclasses.replace(first, record=dataclasses.replace(first.record, run="digits-2"))
    seen = histories(first, other)
    assert seen.loss(TaskId("worker", 0)) == [0.5]


def test_rate_has_a_gap_where_training_went_back() -> None:
    (at, _, rate), (_, _, gap) = rates_of([Point(1, 1.0, 0.0), Point(3, 2.0, 0.0), Point(2, 3.0, 0.0)])
    assert (at, rate) == (3, 2.0)
    assert math.isnan(gap)


def test_a_curve_is_drawn_by_its_steps_however_dense_its_points_are() -> None:
    dense_at_the_end = [(float(step), float(step)) for step in (*range(0, 900, 100), *range(900, 1000))]
    assert spread(dense_at_the_end, 10) == pytest.approx([0.0, 100, 200, 300, 400, 500, 600, 700, 800, 949.5])
    assert spread([(1.0, 5.0), (2.0, math.nan)], 10)[0] == 5.0
    assert spread([(float(place), 1.0 if place < 5 else math.nan) for place in range(20)], 4) == [1.0] * 4
    assert spread([(7.0, 1.0)] * 9, 3) == [1.0] * 3


def test_training_loss_is_drawn_if_there_are_several() -> None:
    losses = Losses()
    for name, tag in (("validation", "loss"), ("train", "loss/regularization"), ("train", "loss"), ("eval", "loss")):
        losses.add(Series(tag, name, "a", "/out", (Point(1, 1.0, len(name) + len(tag)),), 1))
    assert losses.best() == [Point(1, 1.0, 9.0)]
    for step in range(10_000):
        losses.add(Series("loss", "train", "a", "/out", (Point(step, step, 1.0),), 1))
    assert len(losses.best()) <= 801
    assert Losses().best() == []


def test_no_text_of_a_host_moves_the_cursor() -> None:
    away = Disconnected("c", TransportError(poisoned("gone")))
    found = Snapshot(poisoned(any_status()), NOW, broken={poisoned("c"): away})
    made = page(found, Histories(), (), Choice(filter=poisoned("")), (120, 40))
    shown = page(found, Histories(), (), Choice(), (120, 40))
    text = [joined(line) for line in [*made.top, *shown.top, shown.heading, *shown.lines()]]
    assert len(shown.rows) == 3
    assert [left_in(line) for line in text if left_in(line)] == []
    assert not any("\t" in line or "\n" in line for line in text)


MIXED = (
    training("worker:0", 300, rate=9.0),
    training("worker:1", 20, rate=None, loss="nan"),
    task("worker:2", "failed", code=2, attempt=4),
    task("ps:0", "backoff", why="killed by SIGKILL", next_start=NOW + 5),
    task("ps:1"),
)


def shown(choice: Choice, *tasks: object) -> list[str]:
    return [str(row.of) for row in rows(snapshot(*tasks or MIXED), Histories(), choice)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sort", "first", "last"),
    [
        ("TASK", "worker:0", "ps:1"),
        ("STATE", "worker:2", "ps:1"),
        ("STEP", "worker:1", "ps:1"),
        ("RATE", "worker:0", "ps:1"),
        ("LOSS", "worker:0", "ps:1"),
        ("RESTARTS", "worker:2", "ps:1"),
        ("HOST", "worker:0", "worker:2"),
    ],
)
def test_the_tasks_are_sorted_by_any_column(sort: str, first: str, last: str) -> None:
    names = shown(Choice(sort=sort))
    assert (names[0], names[-1]) == (first, last)
    assert sorted(names) == sorted(str(one.id) for one in MIXED)


def test_every_column_that_can_be_sorted_by_sorts_both_ways_and_keeps_all_rows() -> None:
    for sort in SORTED_BY:
        for backwards in (False, True):
            assert len(shown(Choice(sort=sort, backwards=backwards))) == len(MIXED)


def test_unknown_values_sort_last_in_both_directions() -> None:
    for backwards in (False, True):
        names = shown(Choice(sort="STEP", backwards=backwards))
        assert set(names[2:]) == {"worker:2", "ps:0", "ps:1"}
    assert shown(Choice(sort="LOSS", backwards=True))[0] == "worker:0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("worker", ["worker:0", "worker:1", "worker:2"]),
        ("WORKER failed", ["worker:2"]),
        ("sigkill", ["ps:0"]),
        ("host-1", ["worker:1", "ps:1"]),
        ("nothing", []),
        ("  ", [str(one.id) for one in MIXED]),
    ],
)
def test_a_filter_finds_each_of_its_words_anywhere_in_the_row(text: str, found: list[str]) -> None:
    assert shown(Choice(filter=text)) == found


def test_a_folded_job_is_one_row_with_the_worst_state() -> None:
    found = rows(snapshot(*MIXED), Histories(), Choice(folded=frozenset({"worker"})))
    assert [str(row.of) for row in found] == ["worker", "ps:0", "ps:1"]
    cells = found[0].cells
    assert (cells["TASK"], cells["STATE"], cells["STEP"]) == ("worker (3)", "failed", "20..300")
    assert (cells["NOTE"], cells["RESTARTS"], cells["HOST"]) == ("1 failed, 2 running", "0..3", "host-[0-2]")


def test_a_folded_job_counts_its_filtered_tasks() -> None:
    (row,) = rows(snapshot(*MIXED), Histories(), Choice(filter="failed", folded=frozenset({"worker"})))
    assert row.cells["TASK"] == "worker (1/3)"


def test_jobs_are_unfolded_and_all_fold_at_once() -> None:
    jobs = frozenset({"ps", "worker"})
    assert Choice().folding("ps").folding("ps") == Choice()
    assert Choice().folding("ps").folding_all(jobs).folded == jobs
    assert Choice(folded=jobs).folding_all(jobs).folded == frozenset()


def test_a_row_shows_what_its_task_does() -> None:
    found = {row.of: row.cells for row in rows(snapshot(*MIXED), Histories(), Choice())}
    worker = found[TaskId("worker", 0)]
    assert (worker["STEP"], worker["RATE"], worker["LOSS"], worker["FOR"]) == ("300", "9/s", "0.5", "1m")
    assert worker["OUTPUT"] == "2s"
    assert found[TaskId("worker", 2)]["NOTE"] == "exit code 2"
    assert found[TaskId("ps", 0)]["NOTE"] == "killed by SIGKILL; starts again in 5s"


def drawn(width: int, found: list[Row] | None = None) -> tuple[str, list[str]]:
    found = rows(snapshot(*MIXED), Histories(), Choice()) if found is None else found
    made = layout(found, width)
    return joined(made.heading(Choice())), [joined(made.line(row)) for row in found]


def test_a_wide_terminal_shows_every_column_that_is_not_empty() -> None:
    heading, _ = drawn(160)
    assert heading.split() == ["TASK", "HOST", "STATE", "FOR", "STEP", "RATE", "LOSS", "RESTARTS", "OUTPUT", "NOTE"]


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal_and_the_reason_of_a_failure_stays(width: int) -> None:
    heading, lines = drawn(width)
    assert {len(line) for line in [heading, *lines]} == {max(map(len, lines))}
    assert len(heading) <= width
    assert "NOTE" in heading or width < 24
    if width >= 40:
        assert "exit code 2" in lines[2]
    assert "failed" in lines[2]


def test_characters_that_take_two_columns_or_none_keep_the_columns_in_line() -> None:
    from rich.cells import cell_len

    found = rows(snapshot(task("worker:0", host="日本"), task("worker:1", host="e\u0301x")), Histories(), Choice())
    _, lines = drawn(60, found)
    assert len({cell_len(line) for line in lines}) == 1


def test_two_hundred_tasks_are_drawn_in_a_moment() -> None:
    tasks = [training(f"worker:{index}", index) for index in range(200)]
    began = time.process_time()
    for _ in range(5):
        found = rows(snapshot(*tasks), Histories(), Choice(sort="STEP"))
        made = layout(found, 120)
        lines = [made.line(row) for row in found]
    assert len(lines) == 200
    assert (time.process_time() - began) / 5 < 0.25, "a tenth of it is usual"


def test_the_usual_run_fits_on_eighty_columns_with_steps_and_loss() -> None:
    found = rows(snapshot(*USUAL), Histories(), Choice())
    heading, _ = drawn(80, found)
    assert {"STEP", "RATE", "LOSS", "OUTPUT"} <= set(heading.split())
