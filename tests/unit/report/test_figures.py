"""Curves: the values that can be read, where restarts are, and what is drawn once."""

from __future__ import annotations

import dataclasses

from dtctl.agent.records.answers import Log
from dtctl.agent.records.kinds import made
from dtctl.errors import DtctlError
from dtctl.operations.logs import LogLines
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.pages.comparing import Comparison, Metric, compared
from dtctl.rooms.pages.comparing_screen import comparison_rows, same_everywhere
from dtctl.rooms.pages.report import own_of
from dtctl.rooms.pages.report.logged import LoggedSteps
from dtctl.rooms.pages.report_page import markdown, page
from dtctl.rooms.pages.report_page.figures import MOST_READINGS, figures, restarts_of, tags, tags_of_runs
from tests.unit.coordinated import record
from tests.unit.report.reports import report
from tests.unit.report.test_page import Read


def series(tag: str = "loss", values: int = 100, name: str = "train") -> Series:
    points = tuple(Point(step, 1000.0 + step, 1 / (1 + step)) for step in range(values))
    return Series(tag, name, "c", "/out", points, values, points[-1].value, points[0].value)


def test_values_are_read_at_steps_that_there_are_and_the_last_is_one_of_them() -> None:
    (figure,) = figures({"loss": [series(), dataclasses.replace(series(values=50), name="eval")]})
    assert len(figure.readings) <= MOST_READINGS
    assert figure.readings[-1].text == "step 99: train 0.01, eval 0.02"
    assert (figure.readings[0].begin, figure.readings[-1].end) == (0.0, 1.0)
    assert all(one.begin < one.end for one in figure.readings)


def test_a_restart_is_marked_where_the_curve_was_by_then() -> None:
    (figure,) = figures({"loss": [series()]}, [(1050.5, "worker:1 restarted at 00:17:30 (attempt 2)"), (9e9, "later")])
    (mark,) = figure.marks
    assert round(mark.at * 99) == 50
    assert [one.text for one in figure.readings if "worker:1 restarted" in one.text]


def test_restarts_stand_on_the_time_axis_of_the_page() -> None:
    read = Read(page(report()))
    assert [text for _, text in restarts_of(report())] == ["worker:0 restarted at 00:17:48 (attempt 2)"]
    assert any(one.get("class") == "mark" for one in read.named("rect"))
    assert any("Restarts: 00:17:48: worker:0 restarted" in text for text in read.text_in("p"))


def lines(text: str, *, attempt: int = 1, offset: int = 0, at: float = 1000.0) -> LogLines:
    data = text.encode()
    log = made(Log, task="worker:0", attempt=attempt, offset=offset, end=offset + len(data), time=at)
    return LogLines(log, data)


def test_logged_steps_make_the_curves_of_a_run_without_event_files() -> None:
    steps = LoggedSteps()
    for number in range(40):
        steps._add(lines(f"step {number * 10} loss {1 / (number + 1):.3f}\n", offset=number * 100, at=1000.0 + number))
    loss, rate = steps.series(record())
    assert (loss.tag, loss.name, loss.count, loss.points[-1].step) == ("loss", "log", 40, 390)
    assert (rate.tag, {round(point.value) for point in rate.points}) == ("steps/s", {10})
    made_of_log = dataclasses.replace(report(), scalars=Metrics(None, ()), rates=(), logged=(loss, rate))
    assert [*tags(made_of_log)] == ["loss", "steps/s"]
    assert "from 1 at step 0 to 0.025 at step 390" in page(made_of_log)
    assert "from 1 at step 0 to 0.025 at step 390" in markdown(made_of_log)


def test_steps_that_are_made_again_replace_the_first_ones_in_the_curve() -> None:
    steps = LoggedSteps()
    steps._add(lines("step 10 loss 3\nstep 20 loss 2\nstep 30 loss 1\n"))
    steps._add(lines("step 20 loss 2.5\nstep 25 loss 2.1\n", attempt=2, at=1100.0))
    (loss, *_) = steps.series(record())
    assert [(point.step, point.value) for point in loss.points] == [(10, 3.0), (20, 2.5), (25, 2.1)]


def test_lines_that_were_read_before_are_not_read_again() -> None:
    steps = LoggedSteps()
    steps._add(lines("step 10 loss 3\nstep 20 loss 2\n"))
    steps._add(lines("step 10 loss 3\n"))
    assert steps.series(record())[0].points[-1].step == 20


def test_a_comparison_draws_each_curve_once_and_names_where_a_loss_is_from() -> None:
    made_now = report()
    one = dataclasses.replace(compared(made_now.status, made_now.scalars), metrics={"loss": Metric(0.5, 0.25)})
    other = dataclasses.replace(one, restarts=one.restarts + 4)
    found = Comparison({"digits-1": one, "digits-2": other}, {"digits-3": DtctlError("no host knows digits-3")})
    titles = [text for text in Read(page(made_now, found)).text_in("h3") if text.strip() == "loss"]
    assert titles == ["loss"]
    rows = dict(comparison_rows(found))
    assert [*rows] == ["restarts"], "what is the same is no row"
    (text,) = same_everywhere(found)
    assert "outcome Failed" in text
    assert "loss (event files) 0.5, best 0.25" in text
    assert "loss (event files) 0.5, best 0.25." in page(made_now, found)


def test_a_past_run_has_no_curve_of_the_run_that_followed_it() -> None:
    known = dataclasses.replace(record(), starts=(1000.0, 1050.0))
    (kept,) = own_of(Metrics("digits-1", (series(), series("later"))), known).series[:1]
    assert (kept.points[-1].step, kept.count, kept.most) == (49, 50, 1.0)
    later = dataclasses.replace(series("later"), points=(Point(1, 1060.0, 1.0),))
    assert own_of(Metrics("digits-1", (later,)), known).series == ()
    assert own_of(Metrics("digits-1", (later,)), record()).series == (later,)


def test_curves_of_runs_are_named_by_what_differs() -> None:
    runs = {run: [series(name="out/train")] for run in ("digits-20260105-8cb8", "digits-20260105-27a6")}
    assert [one.name for one in tags_of_runs(runs)["loss"]] == ["8cb8", "27a6"]
    runs["digits-20260105-27a6"].append(series(name="out/eval"))
    assert [one.name for one in tags_of_runs(runs)["loss"]] == ["8cb8 out/train", "27a6 out/train", "27a6 out/eval"]
