"""`dtctl compare`: what differs between runs, and what is computed of each."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.errors import TransportError
from dtctl.operations.compare import Comparison, Metric, compare, compared
from dtctl.operations.metrics import Metrics, Point, Series
from dtctl.operations.snapshot import Outcome, RunStatus, Verdict
from dtctl.render.machine.results import comparison
from tests.unit.coordinated import Agents, record
from tests.unit.fakes import FakeTransport
from tests.unit.tasks import past_attempt, task_status


def run(name: str, *tasks: Any, time: float = 1100.0, **settings: str) -> RunStatus:
    known = dataclasses.replace(record(name), settings={key.replace("_", "."): text for key, text in settings.items()})
    return RunStatus(known, {one.id: one for one in tasks}, Verdict(Outcome.RUNNING, ()), (), time)


def series(tag: str, *values: float, name: str = ".", every_s: float = 2.0) -> Series:
    points = tuple(Point(10 * index, 1000.0 + every_s * index, value) for index, value in enumerate(values))
    finite = [value for value in values if value == value]
    return Series(tag, name, "c", "/out", points, len(points), min(finite, default=None), max(finite, default=None))


def scalars(*found: Series) -> Metrics:
    return Metrics("digits-1", found)


def test_only_what_differs_is_shown_and_a_key_that_is_not_set_differs_from_one_that_is() -> None:
    runs = [run("r-1", rate="0.1", grace="30s"), run("r-2", rate="0.5", grace="30s", steps="9")]
    found = Comparison({str(one.record.run): compared(one, scalars()) for one in runs}, {})
    assert found.differences == {"rate": ("0.1", "0.5"), "steps": (None, "9")}
    assert comparison(found)["differences"][1] == {"key": "steps", "values": {"r-1": None, "r-2": "9"}}


def test_other_hosts_differ_by_what_the_hosts_report() -> None:
    moved = run("r-2", jobs_ps_hosts="as it is written")
    moved = dataclasses.replace(
        moved, record=dataclasses.replace(moved.record, roster=dict.fromkeys(moved.record.roster, "e"))
    )
    found = Comparison({"r-1": compared(run("r-1"), scalars()), "r-2": compared(moved, scalars())}, {})
    assert found.differences["jobs.ps.hosts"] == ("a b", "e e")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (series("loss", 3, 1, 2), {"loss": Metric(2, 1)}),
        (series("val_error", 3, 1, 2), {"val_error": Metric(2, 1)}),
        (series("accuracy", 0.1, 0.9, 0.8), {"accuracy": Metric(0.8, 0.9)}),
        (series("mae", 3, 1, 2, name="eval"), {"mae (eval)": Metric(2, 1)}),
        (series("loss", 2, name="train"), {"loss": Metric(2, 2)}),
        (series("global_step/sec", 3, 1), {}),
        (series("loss"), {}),
    ],
)
def test_the_best_of_a_loss_is_its_least_and_of_anything_else_its_most(one: Series, expected: Any) -> None:
    assert compared(run("r-1"), scalars(one)).metrics == expected


def test_of_two_directories_of_one_name_the_coordinators_counts() -> None:
    assert compared(run("r-1"), scalars(series("loss", 1), series("loss", 9))).metrics == {"loss": Metric(1, 1)}


def test_the_pace_is_that_of_the_scalars_or_else_the_last_one_in_the_leads_log() -> None:
    tasks = [task_status("ps:0", rate=7.0), task_status("worker:0", rate=5.0, restarts=2)]
    assert compared(run("r-1", *tasks), scalars(series("loss", 3, 2, 1))).steps_per_s == 5.0
    assert compared(run("r-1", *tasks), scalars(series("loss", 3))).steps_per_s == 5.0
    assert compared(run("r-1", task_status("ps:0", rate=7.0)), scalars()).steps_per_s == 7.0
    assert compared(run("r-1"), scalars()).steps_per_s is None


def test_the_duration_ends_with_the_last_task_or_is_still_counted() -> None:
    ended = task_status("worker:0", state="failed", history=[past_attempt(1, 1001.0, 1042.0, 1)])
    over = dataclasses.replace(run("r-1", ended), verdict=Verdict(Outcome.FAILED, ()))
    assert compared(over, scalars()).duration_s == 42.0
    assert compared(run("r-1"), scalars()).duration_s == 100.0
    assert compared(run("r-1", time=0.0), scalars()).duration_s is None


def test_a_run_whose_hosts_do_not_answer_leaves_the_others() -> None:
    agents = Agents(None)

    def answer(session: Any, fields: Any) -> Any:
        if fields["run"] == "digits-2":
            raise TransportError("c is down")
        if fields["type"] == "metrics":
            told = {"time": 1.0, "dirs": [], "problems": [], "unread_bytes": 0, "omitted": 0, "folders": []}
            return [{"type": "result", "run": "digits-1", **told}]
        return agents(session, fields)

    found = compare([record("digits-1"), record("digits-2")], FakeTransport(answer))
    assert list(found.runs) == ["digits-1"]
    assert [error.summary for error in found.errors.values()] == ["c is down"]
