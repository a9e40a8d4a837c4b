"""How `make rooms` takes rooms out of a copy of the tree."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import rooms
from tests.rooms import ROOT, TABLES, without_rows
from tests.sampling import FEW, few_of

TABLE = '''\
"""The table of ROOMS = {}."""

def Room(*positional, **parts):
    return parts

OTHERS = {"first": 1}
ROOMS: "dict[str, object]" = {
    "first": Room({"first": ("a {", "},")}, part="one.run"), "second": Room(part="one.run"),
    # "third" is written over many lines.
    "third": Room(
        {"third": ("Shows } and {", '"third": Room(')},
        part="own.run",
        joint="first.run",
        topics={"a": ("first.facts", "records.Facts"), "b": ("own.facts", "records.deep.Facts")},
        needs=("second",),
    ),
}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("first/one.py", "second/one.py", "third/own.py", "third/first.py", "third/records/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def rows(text: str) -> dict[str, dict[str, object]]:
    known: dict[str, dict[str, dict[str, object]]] = {}
    exec(text, known)
    return known["ROOMS"]


@pytest.mark.parametrize("gone", [{"first"}, {"second"}, {"third"}, {"first", "third"}, {"first", "second", "third"}])
def test_rows_are_removed_whatever_their_layout(gone: set[str], folder: Path) -> None:
    left = rows(without_rows(TABLE, gone, folder))
    assert left == {name: row for name, row in rows(TABLE).items() if name not in gone}


def test_parts_of_other_rooms_go_with_their_module(folder: Path) -> None:
    (folder / "third/first.py").unlink()
    assert rows(without_rows(TABLE, {"first"}, folder))["third"] == {
        "part": "own.run",
        "topics": {"b": ("own.facts", "records.deep.Facts")},
        "needs": ("second",),
    }


def test_a_part_without_any_entry_left_is_removed(folder: Path) -> None:
    for module in ("first", "own"):
        (folder / f"third/{module}.py").unlink()
    assert rows(without_rows(TABLE, set(), folder))["third"] == {"needs": ("second",)}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("room", rooms.names())
def test_each_room_is_removed_from_the_tables_and_the_others_stay(room: str, table: str) -> None:
    text, folder = (ROOT / table).read_text(), (ROOT / table).parent
    assert keys(without_rows(text, {room}, folder)) == [one for one in keys(text) if one != room]


def keys(text: str) -> list[str]:
    tables = [node.value for node in ast.parse(text).body if isinstance(node, ast.AnnAssign)]
    first = next(table for table in tables if isinstance(table, ast.Dict))
    return [str(ast.literal_eval(key)) for key in first.keys if key]


def test_a_room_takes_those_that_need_it_with_it() -> None:
    for room in rooms.names():
        gone = rooms.with_those_that_need(room)
        assert room in gone
        assert not any(rooms.needs(one) & gone for one in {*rooms.names()} - gone)


def test_tests_that_reach_no_table_of_rooms_are_not_run_without_one() -> None:
    tests = {str(path.relative_to(ROOT)) for path in rooms.tests_of_the_core()}
    assert "tests/unit/agent/test_policy.py" not in tests
    assert {"tests/unit/test_commands.py", "tests/unit/operations/test_logs.py"} <= tests


@pytest.mark.parametrize("count", [0, 1, FEW, FEW + 1, 1000])
def test_few_cases_are_the_first_the_last_and_some_between(count: int) -> None:
    chosen = few_of(count)
    assert len(chosen) == min(count, FEW)
    assert chosen <= {*range(count)}
    assert not count or {0, count - 1} <= chosen
