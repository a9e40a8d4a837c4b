"""The table of `dtctl top`: sorted, filtered, folded, and in as many columns as there is room for."""

from __future__ import annotations

import time

import pytest

from dtctl.model import TaskId
from dtctl.render.top.model import Choice, Histories
from dtctl.render.top.table import SORTED_BY, Row, layout, rows
from tests.unit.render.top.runs import NOW, USUAL, snapshot, task, training, words

MIXED = (
    training("worker:0", 300, rate=9.0),
    training("worker:1", 20, rate=None, loss="nan"),
    task("worker:2", "failed", code=2, restarts=3),
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


def test_what_is_not_known_comes_last_whichever_way_it_is_sorted() -> None:
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
    assert shown(Choice(words=text)) == found


def test_a_folded_job_is_one_row_that_shows_the_worst_of_it() -> None:
    found = rows(snapshot(*MIXED), Histories(), Choice(folded=frozenset({"worker"})))
    assert [str(row.of) for row in found] == ["worker", "ps:0", "ps:1"]
    cells = found[0].cells
    assert (cells["TASK"], cells["STATE"], cells["STEP"]) == ("worker (3)", "failed", "300")
    assert (cells["NOTE"], cells["RESTARTS"], cells["HOST"]) == ("1 failed, 2 running", "3", "3 hosts")


def test_a_folded_job_counts_what_the_filter_has_left_of_it() -> None:
    (row,) = rows(snapshot(*MIXED), Histories(), Choice(words="failed", folded=frozenset({"worker"})))
    assert row.cells["TASK"] == "worker (1/3)"


def test_folding_is_taken_back_and_all_jobs_fold_at_once() -> None:
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
    return words(made.heading(Choice())), [words(made.line(row)) for row in found]


def test_a_wide_terminal_shows_every_column_that_has_something_to_say() -> None:
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
