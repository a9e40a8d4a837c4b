"""The tasks in `dtctl status`: one line each where there is room, those that do alike together where there is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from dtctl.model import TaskState
from dtctl.operations.snapshot import RunStatus, TaskStatus
from dtctl.render.roster import rows_of, tasks_table
from dtctl.render.status import show_status
from dtctl.render.terminal import console
from tests.unit.diagnosing import ended, facts, machine, running
from tests.unit.ended_logs import LOGS
from tests.unit.tasks import changed


def workers(number: int) -> list[TaskStatus]:
    return [
        running(
            f"worker:{n}", f"gpu-{n // 2}", step=3250 + n % 12, step_time=999.0, rate=61.0, cpu=1.9, memory_bytes=10**9
        )
        for n in range(number)
    ]


def of(*tasks: TaskStatus) -> RunStatus:
    return facts(*tasks).status


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A terminal of 120 columns and 30 lines."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("TERM", "xterm")
    console.choose_color("always")
    monkeypatch.setenv("NO_COLOR", "1")
    yield monkeypatch
    console.choose_color("auto")


def shown(capsys: pytest.CaptureFixture[str], status: RunStatus, *, every: bool = False) -> list[str]:
    show_status(status, every=every)
    return capsys.readouterr().out.splitlines()


BAD = ended("worker:7", LOGS["argparse"], "gpu-3", code=2)


def two_hundred() -> list[TaskStatus]:
    tasks = workers(200)
    tasks[7] = BAD
    tasks[90] = changed(tasks[90], rate=11.0)
    return tasks


def test_200_tasks_fit_on_30_lines(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, of(*two_hundred()))
    assert len(lines) <= 30
    rows = [line.split() for line in lines if line.startswith("worker:")]
    assert [row[:3] for row in rows] == [
        ["worker:7", "gpu-3", "failed"],
        ["worker:90", "gpu-45", "running"],
        ["worker:[0-6,8-89,91-199]", "gpu-[0-99]", "running"],
    ]
    assert "3250..3261" in rows[2]
    assert "61/s" in rows[2]
    assert lines[1].startswith("problem: worker:7 on gpu-3 exited 2 at ")
    assert "straggler: its peers make 61/s" in " ".join(rows[1])


def test_a_pipe_and_all_show_every_task(screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status = of(*two_hundred())
    assert sum(line.startswith("worker:") for line in shown(capsys, status, every=True)) == 200
    console.choose_color("auto")
    assert sum(line.startswith("worker:") for line in shown(capsys, status)) == 200


def test_where_there_is_room_nothing_is_folded() -> None:
    status = of(*workers(10))
    assert [len(row.tasks) for row in rows_of(status, 10)] == [1] * 10
    assert [len(row.tasks) for row in rows_of(status, 9)] == [10]


def test_tasks_that_failed_in_different_ways_are_not_folded() -> None:
    tasks = workers(20)
    tasks[3], tasks[4] = ended("worker:3", LOGS["argparse"], code=2), ended("worker:4", "MemoryError\n")
    tasks[5] = ended("worker:5", LOGS["argparse"], code=2)
    rows = rows_of(of(*tasks), 10)
    assert [[str(task.id) for task in row.tasks] for row in rows[:2]] == [["worker:3", "worker:5"], ["worker:4"]]
    assert len(rows) == 3


@pytest.mark.parametrize("width", [120, 80, 60, 44])
def test_a_narrow_terminal_drops_columns_but_no_reason(
    screen: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    screen.setenv("COLUMNS", str(width))
    lines = shown(capsys, of(BAD, *workers(3)))
    assert all(len(line) <= width for line in lines if not line.startswith(("demo", "problem", " ")))
    words = " ".join(" ".join(lines).split())
    assert all(word in words for word in ("exit code 2", "unrecognized", "--step_s=0.2", "failed", "worker:7"))
    head = next(line for line in lines if line.startswith("TASK")).split()
    assert {"TASK", "STATE", "NOTE"} <= set(head)
    assert ("PID" in head) == (width == 120)


def test_columns_without_anything_in_them_are_left_out() -> None:
    status = of(running("ps:0", progress=None))
    names = [column.header for column in tasks_table(rows_of(status), status).columns]
    assert not {"STEP", "RATE", "OUTPUT", "CPU", "MEMORY"} & set(names)


@pytest.mark.parametrize(
    ("task", "note"),
    [
        (running("worker:0", step=10, step_time=960.0), "last step 40s ago"),
        (running("worker:0", step=10, step_time=990.0), ""),
        (dataclasses.replace(running("worker:0", step=10, step_time=900.0), state=TaskState.PENDING), ""),
    ],
)
def test_a_task_without_a_new_step_says_since_when(task: TaskStatus, note: str) -> None:
    assert rows_of(of(task))[0].note == note


def test_the_problem_stands_above_the_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, of(BAD, *workers(2)))
    assert lines[1].startswith("problem: worker:7 on gpu-3 exited 2 at ")
    assert lines[1].endswith(": unrecognized arguments: --step_s=0.2")
    assert lines[3] == "  dtctl plan worker:7    shows it"
    assert lines[5].startswith("TASK")


def test_how_busy_hosts_are_is_no_problem_of_all() -> None:
    status = facts(*workers(4), machines={"gpu-0": machine(load=40.0), "gpu-1": machine(load=40.0)}).status
    assert [row.note for row in rows_of(status)] == [""] * 4
