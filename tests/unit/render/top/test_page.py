"""What stands above the table of `dtctl top`: the answer, its curves, and what is wrong with its cause."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.reasons import said
from dtctl.agent.records.whole_run import RunView
from dtctl.errors import TransportError
from dtctl.model import TaskId
from dtctl.operations.client.streams import Away
from dtctl.operations.losses import Losses
from dtctl.operations.metrics import Point, Series
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.render.diagnosis import problem_lines
from dtctl.render.top.model import Choice, Histories, History, Snapshot, rates_of
from dtctl.render.top.page import curves, page, problems, spread, wrapped
from tests.unit.agent.poisons import left_in
from tests.unit.coordinated import incident, record, told
from tests.unit.render.test_safe_output import poisoned
from tests.unit.render.test_safe_output import run_status as any_status
from tests.unit.render.top.runs import NOW, histories, run_status, snapshot, task, training, words


def top_of(found: Snapshot, width: int = 100, height: int = 24) -> list[str]:
    return [words(line) for line in page(found, Histories(), (), Choice(), (width, height)).top]


def test_the_answer_stands_first_and_grows_older_by_itself() -> None:
    (line,) = top_of(snapshot())
    assert line == "digits-1: Running 1m40s · step 120/1000 · 5 steps/s · done in 2m56s · loss 0.7"
    later = dataclasses.replace(snapshot(), now=NOW + 40)
    assert top_of(later)[0].startswith("digits-1: Running 2m20s · step 120/1000 · last step 41s ago")


def test_a_run_that_trains_has_nothing_wrong() -> None:
    assert problems(snapshot(), 10) == []


def test_the_first_failure_stands_first_with_its_cause_and_the_next_command() -> None:
    failed = Verdict(Outcome.FAILED, tuple(said("ps:1 failed")), TaskId("ps", 1))
    lost = task("ps:1", "failed", host="b", why="ModuleNotFoundError: sklearn")
    found = snapshot(task("ps:0", "failed", why="lost its peer"), lost, training("worker:0"), verdict=failed)
    lines = [words(line) for line in problems(found, 10)]
    assert lines[0] == "ps:1 on b failed first: ModuleNotFoundError: sklearn   dtctl logs ps:1"
    assert lines[-2:] == ["ps:0 on host-0 (failed): lost its peer", "ending: worker:0"]


def test_what_is_most_wrong_is_shown_in_the_words_of_status() -> None:
    lost = task("worker:1", "backoff", host="b", why="ModuleNotFoundError: No module named 'sklearn'")
    found = snapshot(task("ps:0"), lost, training("worker:0"))
    problem = problem_lines(found.status)
    assert "No module named" in problem[0]
    lines = [words(line) for line in problems(found, 10)]
    assert lines == problem, "no line of the task tells the same once more"
    assert top_of(found)[1 : 1 + len(problem)] == problem


def test_tasks_that_show_the_same_are_one_line() -> None:
    tasks = [task(f"worker:{index}", "failed", host=f"gpu-{index}", code=1) for index in range(1, 31)]
    line, *more = problems(snapshot(*tasks), 10)
    assert words(line).startswith("problem: worker:[1-30] on gpu-[1-30] exited 1")
    assert "(failed)" not in "".join(map(words, more))
    lost = [task(f"worker:{index}", "lost", host=f"gpu-{index}", why="gone") for index in range(1, 31)]
    assert (
        words(problems(snapshot(*lost), 10)[-1]) == "worker:1, worker:2, worker:3, 27 more on gpu-[1-30] (lost): gone"
    )


def test_hosts_that_cannot_be_asked_stand_before_what_they_said_last() -> None:
    away = Away("c", TransportError("no route to c"))
    found = dataclasses.replace(snapshot(task("ps:0", "stalled", why="no step for 90 s")), broken={"c": away})
    assert [words(line) for line in problems(found, 10)] == [
        "c cannot be asked: no route to c; tried again",
        "ps:0 on host-0 (stalled): no step for 90 s",
    ]


def test_what_the_coordinator_waits_for_warns_of_and_mends_is_shown() -> None:
    view = told(missing="ps:1 is not there", warnings=["odd"], incidents=[incident(recovered=None)])
    coordination = Coordination.of(checked(RunView, view), record().roster)
    lines = [words(line) for line in problems(snapshot(coordination=coordination), 10)]
    assert lines[0] == "waiting: ps:1 is not there"
    assert "killed by SIGKILL" in lines[1]
    assert lines[2] == "warning: odd"


def test_more_than_there_is_room_for_is_counted() -> None:
    tasks = [task(f"worker:{index}", "stalled", why=f"no step for {index} s") for index in range(9)]
    every = problems(snapshot(*tasks), 100)
    lines = [words(line) for line in problems(snapshot(*tasks), 3)]
    assert len(lines) == 3
    assert lines[-1] == f"and {len(every) - 2} more lines: dtctl status"


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (80, 24), (200, 60)])
def test_whatever_is_wrong_the_table_keeps_some_lines_and_nothing_is_too_wide(size: tuple[int, int]) -> None:
    tasks = [task(f"worker:{index}", "failed", why=f"{index} " + "why " * 60) for index in range(20)]
    lines = top_of(snapshot(*tasks), *size)
    assert max(map(len, lines)) <= size[0]
    assert any("problem" in line for line in lines)
    if size[1] >= 24:
        assert len(lines) <= size[1] - 6


def test_lines_are_broken_at_blanks_and_words_that_are_too_long_anywhere() -> None:
    line = [("one two", "bold"), (" " + "x" * 25, "")]
    assert [words(part) for part in wrapped(line, 10)] == ["one two ", *["  xxxxxxxx"] * 3, "  x"]
    assert wrapped([("short", "")], 10) == [[("short", "")]]


def test_the_curves_show_the_run_since_somebody_looks_or_the_event_files_since_its_beginning() -> None:
    seen = histories(*(_at(second, 1.0 / second, 10.0 + second) for second in range(1, 10)))
    assert words(curves(seen, (), 80)).startswith("loss 1 to 0.111 █")
    points = [Point(step, 10.0 * step, 5.0 - step) for step in range(5)]
    line = words(curves(seen, points, 80))
    assert line.startswith("loss 5 to 1 █▇▅▃▁")
    assert "rate 0.1 to 0.1" in line
    assert curves(Histories(), (), 80) == []
    assert curves(seen, (), 10) == []


def _at(second: float, loss: float, rate: float) -> RunStatus:
    lead = training("worker:0", int(second), step_time=NOW + second * 2, loss=str(loss), rate=rate)
    return run_status(lead)


def test_a_course_stays_small_and_whole() -> None:
    history = History(most=10)
    for second in range(1000):
        history.add(float(second), float(second))
    assert len(history.values) <= 10
    assert history.values[0] < 200
    assert history.values[-1] > 800


def test_another_run_begins_its_curves_anew() -> None:
    first = run_status(training("worker:0"))
    other = dataclasses.replace(first, record=dataclasses.replace(first.record, run="digits-2"))
    seen = histories(first, other)
    assert seen.loss(TaskId("worker", 0)) == [0.5]


def test_where_the_training_went_back_the_rate_has_a_gap() -> None:
    (at, rate), (_, gap) = rates_of([Point(1, 1.0, 0.0), Point(3, 2.0, 0.0), Point(2, 3.0, 0.0)])
    assert (at, rate) == (3.0, 2.0)
    assert math.isnan(gap)


def test_a_curve_is_drawn_by_its_steps_however_dense_its_points_are() -> None:
    dense_at_the_end = [(float(step), float(step)) for step in (*range(0, 900, 100), *range(900, 1000))]
    assert spread(dense_at_the_end, 10) == pytest.approx([0.0, 100, 200, 300, 400, 500, 600, 700, 800, 949.5])
    assert spread([(1.0, 5.0), (2.0, math.nan)], 10)[0] == 5.0
    assert spread([(float(place), 1.0 if place < 5 else math.nan) for place in range(20)], 4) == [1.0] * 4
    assert spread([(7.0, 1.0)] * 9, 3) == [1.0] * 3


def test_of_several_losses_that_of_the_training_is_drawn() -> None:
    losses = Losses()
    for name, tag in (("validation", "loss"), ("train", "loss/regularization"), ("train", "loss"), ("eval", "loss")):
        losses.add(Series(tag, name, "a", "/out", (Point(1, 1.0, len(name) + len(tag)),), 1))
    assert losses.best() == [Point(1, 1.0, 9.0)]
    for step in range(10_000):
        losses.add(Series("loss", "train", "a", "/out", (Point(step, step, 1.0),), 1))
    assert len(losses.best()) <= 801
    assert Losses().best() == []


def test_nothing_of_what_hosts_say_moves_the_cursor() -> None:
    away = Away("c", TransportError(poisoned("gone")))
    found = Snapshot(poisoned(any_status()), NOW, broken={poisoned("c"): away})
    made = page(found, Histories(), (), Choice(words=poisoned("")), (120, 40))
    shown = page(found, Histories(), (), Choice(), (120, 40))
    text = [words(line) for line in [*made.top, *shown.top, shown.heading, *shown.lines()]]
    assert len(shown.rows) == 3
    assert [left_in(line) for line in text if left_in(line)] == []
    assert not any("\t" in line or "\n" in line for line in text)
