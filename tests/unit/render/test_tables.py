"""Tables as text at the usual widths of terminals: no word is broken, and nothing is padded beyond the terminal."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

import pytest
from rich.cells import cell_len

from dtctl.agent.records.reasons import fact
from dtctl.model import TaskState
from dtctl.operations.runs import KnownRun, KnownRuns
from dtctl.operations.snapshot import Outcome, Verdict
from dtctl.render.format import without_prefix
from dtctl.render.roster import rows_of, tasks_table
from dtctl.render.status import SEPARATOR, between_facts, show_runs, stopped_by
from dtctl.render.terminal import console
from dtctl.render.terminal.grid import Grid
from dtctl.rooms.metrics.operation import Point, Series
from dtctl.rooms.metrics.screen import metrics_table
from dtctl.rooms.pages.comparing_screen import comparison_table
from tests.unit.diagnosing import ended, facts, running
from tests.unit.ended_logs import LOGS

DIRECTORY = "/home/ada/.dtctl/work/digits/output"
POINTS = (Point(1, 1.0, 2.5), Point(1200, 2.0, 0.123456))
WIDTHS = (80, 100, 140, 200)
LONG = "digits-of-the-second-experiment-20261130-045823-637a"


def tasks(number: int) -> Grid:
    some = [
        running(f"worker:{n}", f"gpu-node-{n % 150:03d}.cluster", since=990.0, step=n, rate=12.5, pid=10_000 + n)
        for n in range(number)
    ]
    some[0] = ended("worker:0", LOGS["argparse"], "gpu-node-000.cluster", code=2)
    some[1] = dataclasses.replace(some[1], state=TaskState.LOST)
    status = facts(*some).status
    return tasks_table(rows_of(status), status)


def wide_characters() -> Grid:
    columns: dict[str, Sequence[str]] = {
        "HOST": ["主机一", "主机二"],
        "NOTE": ["没有更多的空间 " * 12, "ok"],
        "AGE": ["1s", "12m4s"],
    }
    return console.table(columns)


def metrics() -> Grid:
    return metrics_table(
        [
            Series(
                f"evaluation/{name}_of_the_whole_validation_set", "train", "gpu-1", DIRECTORY, POINTS, 2, 0.1, 2.5, 9.0
            )
            for name in ("loss", "accuracy", "precision")
        ]
    )


def comparison() -> Grid:
    rows = [
        ("outcome", ["Succeeded", "Failed"]),
        ("reason", ["worker:0 finished", "worker:1 failed: exit code 1 (ValueError: shape (3,) does not match (4,))"]),
        ("trainer.args.learning_rate_of_the_optimizer", ["0.0001", "0.001"]),
        ("code", ["0123456789ab (main, with uncommitted changes)", "fedcba987654 (main)"]),
    ]
    return comparison_table(rows, [LONG, LONG.replace("637a", "8b1c")])


TABLES: dict[str, Callable[[], Grid]] = {
    "300 tasks": lambda: tasks(300),
    "2 tasks": lambda: tasks(2),
    "wide characters": wide_characters,
    "metrics": metrics,
    "comparison": comparison,
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", TABLES)
def test_no_table_exceeds_the_terminal_or_breaks_a_word(name: str, width: int) -> None:
    grid = TABLES[name]()
    lines = [line.plain for line in grid.lines(width)]
    assert all(cell_len(line) <= width for line in lines)
    assert not any(line.endswith(" ") or not line for line in lines), "no blanks at ends, and no blank lines"
    words = {word for line in grid.lines(None) for word in re.findall(r"[\w:.]+", line.plain)}
    broken = {word for line in lines for word in re.findall(r"[\w:.]+", line)} - words
    assert not broken


@pytest.mark.parametrize("width", WIDTHS)
def test_no_row_of_a_comparison_loses_its_name(width: int) -> None:
    lines = [line.plain for line in comparison().lines(width)]
    assert all(any(line.startswith(name) for line in lines) for name in ("outcome", "reason", "trainer.args.", "code"))


@pytest.mark.parametrize("name", TABLES)
def test_a_pipe_has_each_row_in_one_line_without_padding(name: str) -> None:
    grid = TABLES[name]()
    lines = [line.plain for line in grid.lines(None)]
    assert len(lines) == 1 + grid.rows
    assert not any(line.endswith(" ") for line in lines)


def test_a_long_cell_has_a_hanging_indent() -> None:
    lines = [
        line.plain for line in console.table({"HOST": ["a", "b"], "NOTE": ["one two three " * 5, "four"]}).lines(40)
    ]
    assert lines == [
        "HOST  NOTE",
        "a     one two three one two three one",
        "        two three one two three one two",
        "        three",
        "b     four",
    ]


def test_rows_become_blocks_where_columns_have_no_room() -> None:
    grid = console.table({"TAG": ["a" * 30], "RUN": ["b" * 30], "STEP": ["5"]})
    assert [line.plain for line in grid.lines(40)] == ["a" * 30, f"  RUN {'b' * 30}", "  STEP 5"]


def test_a_column_with_one_value_is_told_once_on_a_narrow_terminal() -> None:
    grid = console.table({"TAG": ["loss", "rate"], "WHERE": ["gpu-1:/data/logs"] * 2}, shared=("WHERE",))
    assert [line.plain for line in grid.lines(20)] == ["TAG", "loss", "rate", "WHERE gpu-1:/data/", "  logs"]
    assert grid.lines(80)[0].plain == "TAG   WHERE"


def test_runs_are_named_by_what_they_differ_in() -> None:
    assert without_prefix(["digits-20260105-100001-3f2a", "digits-20260105-110203-77aa"]) == (
        "digits-20260105-",
        ["100001-3f2a", "110203-77aa"],
    )
    assert without_prefix(["digits-1"]) == ("", ["digits-1"])
    assert without_prefix(["a-1", "b-1"]) == ("", ["a-1", "b-1"])
    assert without_prefix(["a-1", "a-1-2"]) == ("a-", ["1", "1-2"])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_runs_fits(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "table_width", lambda: width)
    verdict = Verdict(Outcome.SUCCEEDED, ())
    runs = [
        KnownRun(f"{LONG}{n}", "digits", 1000.0 + n, False, ("gpu-1", "gpu-2"), {}, verdict, "ada@laptop")
        for n in range(30)
    ]
    show_runs(KnownRuns(tuple(runs), (), {}))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 31
    assert all(len(line) <= width and line == line.rstrip() for line in lines)
    assert all(f"{LONG}{n}" in lines[n + 1] for n in range(30))


def test_a_headline_breaks_between_facts_and_a_long_fact_goes_on_where_it_begins() -> None:
    head = [("digits-1", "bold"), (": ", ""), ("Running", ""), (f" {SEPARATOR.strip()} step 5", "")]
    facts = [(f"{SEPARATOR}{fact}", "") for fact in ("70.8 steps/s", "done in 12m12s", "loss 0.00642")]
    lines = ["".join(words for words, _ in line) for line in between_facts([*head, *facts], 44)]
    assert lines == ["digits-1: Running · step 5 · 70.8 steps/s", "  done in 12m12s · loss 0.00642"]
    (whole,) = between_facts([("digits-1", ""), (f"{SEPARATOR}{'why ' * 20}", "")], 40)
    assert len(whole) == 2


def test_a_stopped_run_is_told_who_stopped_it_once() -> None:
    assert stopped_by(Verdict(Outcome.STOPPED, (fact("stopped_by", by="ada@desk"),))) == "by ada@desk"
    assert stopped_by(Verdict(Outcome.STOPPED, (fact("said", text="maintenance"),))) == ""
    assert stopped_by(Verdict(Outcome.FAILED, (fact("stopped_by", by="ada@desk"),))) == ""
