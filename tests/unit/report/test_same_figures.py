"""No figure differs between two screens of one moment: text, JSON, top, dashboard, report, compare, Python API."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Any, cast

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.reasons import fact, sentence
from dtctl.agent.records.whole_run import RunView
from dtctl.agent.run import goodput
from dtctl.api.run import Run
from dtctl.api.values import status_of
from dtctl.operations.figures import figures_of
from dtctl.operations.run_record import RunRecord
from dtctl.operations.snapshot import Coordination, Outcome, RunStatus, Verdict
from dtctl.operations.status import with_storage
from dtctl.render.format import count
from dtctl.render.goodput import percent
from dtctl.render.machine.status import run_status
from dtctl.render.roster import cells_of, rows_of
from dtctl.render.status import headline, more_lines
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.pages.comparing import compared
from dtctl.rooms.pages.comparing_screen import _results
from dtctl.rooms.pages.dashboard_page import parts
from dtctl.rooms.pages.report import Report
from dtctl.rooms.pages.report_page import page
from dtctl.rooms.top.model import Choice, Histories, Snapshot
from dtctl.rooms.top.page import answer
from dtctl.rooms.top.table import rows as rows_of_top
from tests.unit.coordinated import entry, incident, record, viewed
from tests.unit.report.reports import account
from tests.unit.tasks import checkpoint, checkpoint_directory, past_attempt

NOW = 1100.0
OUTCOMES = [Outcome.RUNNING, Outcome.RESTARTING, Outcome.FAILED, Outcome.SUCCEEDED, Outcome.STOPPED]


class Tiles(HTMLParser):
    """The figures of a page by their names, and the rows of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._of = ""
        self._name = ""
        self.found: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._of = tag
        if tag == "progress":
            self.found["share"] = str(dict(attributes)["value"])

    def handle_data(self, data: str) -> None:
        if self._of == "dt":
            self._name = data
        elif self._of == "dd":
            self.found[self._name] = data
        self._of = ""


class Rows(HTMLParser):
    """The rows of a table, as cells by the names of its columns."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._rows: list[list[str]] = []
        self.feed(text)
        names, *rows = self._rows
        self.found = [dict(zip(names, row, strict=True)) for row in rows]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._rows and self._rows[-1] and data.strip():
            self._rows[-1][-1] += data


def snapshot(outcome: Outcome) -> RunStatus:
    """Two workers, each in its third attempt; their parameter servers were never restarted."""
    over = outcome.decided
    state = {"Succeeded": "succeeded", "Failed": "failed", "Stopped": "stopped"}.get(outcome.value, "running")
    past = [past_attempt(1, 1011.0, 1040.0, 1), past_attempt(2, 1042.0, 1060.0, 1)]
    ended = [past_attempt(3, 1063.0, 1099.0, 0 if outcome is Outcome.SUCCEEDED else 1)] if over else []
    fields: dict[str, Any] = {"attempt": 3, "restarts": 1, "since": 1063.0, "history": [*past, *ended]}
    fields |= {"step": 300, "step_time": 1098.0, "rate": 12.5, "loss": "0.125", "step_gap_s": 1.0}
    tasks = {task: entry("running") for task in ("ps:0", "ps:1")}
    tasks |= {task: entry(state, **fields) for task in ("worker:0", "worker:1")}
    if over:
        tasks |= {task: entry("stopped") for task in ("ps:0", "ps:1")}
    view = checked(RunView, viewed(outcome.value, "", tasks=tasks, account=account(), incidents=[incident("worker:0")]))
    known = dataclasses.replace(record(), file=None, target_step=3000)
    coordination = Coordination.of({**view, "restarts": 2}, known.roster)
    saved = checkpoint("model.ckpt-250", 250, time=1090.0, size_bytes=10_000_000)
    why = (fact("tasks_run", count=4, of=4),)
    found = checkpoint_directory("c", "/out", saved)
    return RunStatus(known, coordination.tasks, Verdict(outcome, why), (found,), NOW, coordination)


def starting() -> RunStatus:
    """No task has made a step yet."""
    return of(viewed("Running", "", tasks={task: entry("running", since=1090.0) for task in snapshot_tasks()}))


def recovering() -> RunStatus:
    """A worker waits to be started again, and the other one trains on."""
    lost = {"attempt": 2, "restarts": 2, "since": 1095.0, "history": [past_attempt(1, 1011.0, 1090.0, 1)]}
    tasks = {task: entry("running", since=1010.0) for task in ("ps:0", "ps:1")}
    tasks["worker:0"] = entry("running", step=310, step_time=1099.0, rate=9.75, loss="0.25", since=1010.0, attempt=1)
    tasks["worker:1"] = entry("backoff", step=290, step_time=1094.0, loss="0.3", **lost)
    return of(viewed("Restarting", "", tasks=tasks, account=account(), incidents=[incident("worker:1")]))


def snapshot_tasks() -> tuple[str, ...]:
    return ("ps:0", "ps:1", "worker:0", "worker:1")


def of(view: Mapping[str, Any]) -> RunStatus:
    known = dataclasses.replace(record(), file=None, target_step=3000)
    coordination = Coordination.of(checked(RunView, view), known.roster)
    outcome = Outcome(coordination.view["condition"]["type"])
    why = (fact("tasks_run", count=4, of=4),)
    return RunStatus(known, coordination.tasks, Verdict(outcome, why), (), NOW, coordination)


STATES: dict[str, Callable[[], RunStatus]] = {
    "starting": starting,
    "recovering": recovering,
    **{outcome.value: functools.partial(snapshot, outcome) for outcome in OUTCOMES},
}


def reported(status: RunStatus) -> Report:
    from dtctl.operations.events import EventHistory
    from dtctl.rooms.pages.report import put_together

    return put_together(status, EventHistory(()), Metrics(None, ()), {}, {})


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_no_figure_differs_between_two_screens_of_one_moment(outcome: Outcome) -> None:
    status = snapshot(outcome)
    shown, text = run_status(status), "".join(part for part, _ in headline(status))
    whole = reported(status)
    tiles, live = Tiles(page(whole)).found, Tiles("".join(parts(whole).values())).found
    python, beside = status_of(status), compared(status, whole.scalars)
    rows = dict(_results([beside]))
    assert {name: live[name] for name in tiles} == tiles
    assert ("This is a snapshot of a run that goes on." in page(whole)) is not outcome.decided

    each = [task["restarts"] for task in shown["tasks"]]
    assert each == [int(cells_of(row, status)["RESTARTS"]) for row in rows_of(status)] == [0, 0, 2, 2]
    of_top = rows_of_top(Snapshot(status, NOW), Histories(), Choice())
    assert [int(row.cells["RESTARTS"]) for row in of_top] == each
    assert [task.restarts for task in python.tasks.values()] == each
    assert {shown["restarts"], int(tiles["Restarts"]), python.restarts, int(rows["restarts"][0])} == {sum(each)}

    progress = shown["progress"]
    assert f"step {progress['step']}/{progress['targetStep']}" in text
    assert tiles["Step"] == rows["steps"][0] == f"{progress['step']} of {progress['targetStep']}"
    assert (python.step, python.target_step) == (progress["step"], progress["targetStep"]) == (300, 3000)
    assert tiles["Loss"] == progress["loss"] == rows["loss (log)"][0]
    assert f"loss {progress['loss']}" in text
    assert float(live["share"]) == 100 * progress["step"] / progress["targetStep"]

    rate, left_s = progress["stepsPerSecond"], progress["secondsLeft"]
    assert (rate is None) == (left_s is None) == outcome.decided
    assert (python.steps_per_second, python.seconds_left) == (rate, left_s)
    if rate is not None:
        assert (tiles["Steps/s"], tiles["Time left"]) == ("12.5", "3m36s")
        assert "12.5 steps/s" in text
        assert "done in 3m36s" in text
    else:
        assert not {"Steps/s", "Time left"} & tiles.keys()
        assert "steps/s" not in text
        assert "done in" not in text

    share = shown["goodput"]["share"]
    assert tiles["Goodput"] == rows["goodput"][0] == percent(share)
    assert f"goodput {percent(share)}" in "\n".join(more_lines(status))
    assert python.goodput == share
    newest = python.checkpoint
    assert newest is not None
    assert tiles["Checkpoint"] == rows["checkpoint"][0] == f"step {newest.step}"
    assert shown["checkpoints"][0]["newestComplete"]["step"] == newest.step
    assert tiles["Time"] == rows["duration"][0] == "1m40s"
    assert "1m40s" in text
    assert "".join(part for part, _ in answer(Snapshot(status, NOW))) == text


@pytest.mark.parametrize("name", STATES)
def test_no_figure_of_a_task_differs_between_two_screens_of_one_moment(name: str) -> None:
    status = STATES[name]()
    shown, python, whole = run_status(status), status_of(status), reported(status)
    of_status = [cells_of(row, status) for row in rows_of(status)]
    of_top = [row.cells for row in rows_of_top(Snapshot(status, NOW), Histories(), Choice())]
    live = Rows(parts(whole)["tasks"]).found
    assert len(of_status) == len(shown["tasks"]) == len(python.tasks) == len(live)
    for cells, top, seen, task, row in zip(of_status, of_top, shown["tasks"], python.tasks.values(), live, strict=True):
        assert {cells["TASK"], top["TASK"], row["task"], task.name} == {seen["task"]}
        assert {cells["HOST"], top["HOST"], row["host"], task.host} == {seen["host"]}
        assert {cells["STATE"], top["STATE"], row["state"], task.state.value} == {seen["state"]}
        step = "" if seen["step"] is None else str(seen["step"])
        assert {cells["STEP"], top["STEP"], row.get("step", "")} == {step}
        assert task.step == seen["step"]
        assert {cells["RESTARTS"], top["RESTARTS"], row["restarts"]} == {str(seen["restarts"])}
        assert (task.restarts, task.attempt) == (seen["restarts"], seen["attempt"])
        assert {cells["RATE"], top["RATE"], row.get("rate", "")} == {cells["RATE"]}
        assert task.steps_per_second == seen["stepsPerSecond"]
        assert top["LOSS"] == (seen["loss"] or "")

    states = Counter(task["state"] for task in shown["tasks"])
    assert states == Counter(task.state.value for task in python.tasks.values())
    if not status.verdict.outcome.decided and status.verdict.outcome is not Outcome.RESTARTING:
        counts = {state: int(number) for number, state in re.findall(r"(\d+) tasks? (\w+)", parts(whole)["news"])}
        assert counts == states
    hosts = {task["host"] for task in shown["tasks"]}
    assert Tiles(page(whole)).found["Tasks"] == f"{states.total()} on {count(len(hosts), 'host')}"
    assert python.outcome.value == shown["conditions"][0]["type"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.STOPPED, Outcome.SUCCEEDED])
@pytest.mark.parametrize("saved", [0, 20, 35, 50, 250])
def test_the_goodput_in_the_events_is_that_of_the_status(outcome: Outcome, saved: int) -> None:
    status = snapshot(outcome)
    assert status.coordination is not None
    kept = status.coordination.view["account"]
    assert kept is not None
    directory = checkpoint_directory("c", "/out", checkpoint("model.ckpt", saved, time=1090.0))
    found = figures_of(dataclasses.replace(status, checkpoints=(directory,))).goodput
    assert found is not None
    event = goodput.summary(goodput.parts(kept, None if outcome is Outcome.SUCCEEDED else saved))
    assert sentence(event).startswith(f"goodput {percent(found.share)}")


def test_a_past_run_has_no_checkpoint_of_the_run_that_followed_it() -> None:
    status = snapshot(Outcome.SUCCEEDED)
    pushed = checkpoint("model.ckpt-260", 260, time=1150.0, size_bytes=10_000_000)
    later = checkpoint("model.ckpt-900", 900, time=2000.0, size_bytes=10_000_000)
    own = status.checkpoints[0].report["all"]
    every = dataclasses.replace(status, checkpoints=(checkpoint_directory("c", "/out", later, pushed, *own),))
    assert with_storage(every).checkpoints == every.checkpoints, "no later run is known: a push by hand is shown"
    followed = dataclasses.replace(every.record, starts=(500.0, status.record.created, 1900.0))
    found = with_storage(dataclasses.replace(every, record=followed))
    assert [one["step"] for one in found.checkpoints[0].report["all"]] == [260, 250]
    assert found.newest_complete is not None
    assert found.newest_complete["step"] == 260
    running = dataclasses.replace(snapshot(Outcome.RUNNING), record=followed, checkpoints=every.checkpoints)
    assert with_storage(running).checkpoints == every.checkpoints
    assert with_storage(dataclasses.replace(every, record=followed), fresh=True).checkpoints == every.checkpoints


def test_the_python_api_leaves_out_what_a_later_run_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    status = snapshot(Outcome.SUCCEEDED)
    later = checkpoint("model.ckpt-900", 900, time=2000.0, size_bytes=10_000_000)
    own = status.checkpoints[0].report["all"]
    every = dataclasses.replace(status, checkpoints=(checkpoint_directory("c", "/out", later, *own),))
    monkeypatch.setattr("dtctl.api.run.status", lambda known, _: dataclasses.replace(every, record=known))

    class Memory:
        def starts_of(self, known: RunRecord) -> tuple[float, ...]:
            return known.created, 1900.0

        def remember(self, found: RunStatus) -> None:
            pass

    python = Run(status.record, cast("Any", None), cast("Any", Memory())).status()
    assert python.checkpoint is not None
    assert python.checkpoint.step == 250


def test_the_rate_of_a_run_that_continued_counts_its_own_steps() -> None:
    status = snapshot(Outcome.SUCCEEDED)
    created = status.record.created
    earlier = (Point(10, created - 900.0, 1.0), Point(110, created - 800.0, 1.0))
    own = (Point(120, created + 10.0, 0.5), Point(320, created + 30.0, 0.4))
    series = Series("loss", ".", "c", "/out", (*earlier, *own), 4, 0.4, 1.0)
    assert compared(status, Metrics("digits-1", (series,))).steps_per_s == pytest.approx(10.0)
