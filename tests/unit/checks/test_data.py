"""What is told of data: who would read it, which hosts have the odd one, and how much there is."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.records.words import HOME
from dtctl.operations.checks.storage import data_findings, data_places, data_words
from tests.unit.checks.scenes import scene, storage
from tests.unit.clusters import cluster, job

DATA = {"path": "/data", "there": True, "files": 3, "size_bytes": 3_000_000, "digest": "aa"}
JOBS = (job("ps", ["a"], [1]), job("server", ["b"], [2]), job("worker", ["a", "b", "c"], [3] * 3))
SCENE = scene(cluster(*JOBS, dirs={"data": "/data"}))


def found(*told: tuple[str, dict[str, Any]]) -> list[tuple[str, tuple[str, ...], tuple[str, ...], dict[str, Any]]]:
    facts = {host: storage(data=[{**DATA, **each}]) for host, each in told}
    return [
        (one.signature.name, one.seen.hosts, tuple(map(str, one.seen.tasks)), dict(one.seen.fields))
        for one in data_findings(SCENE, facts)
    ]


def test_data_that_is_missing_is_told_with_those_who_would_read_it_there() -> None:
    gone = {"there": False, "path": HOME + "/data"}
    assert found(("a", gone), ("b", gone), ("c", {"path": HOME + "/data"})) == [
        ("data_missing", ("a", "b"), ("worker:0", "worker:1"), {"where": "~/data"})
    ]


def test_each_problem_is_told_once_with_its_hosts() -> None:
    assert found(("a", {"problem": "x"}), ("b", {"problem": "y"}), ("c", {"problem": "x"})) == [
        ("data_unreadable", ("a", "c"), (), {"where": "/data", "said": "x"}),
        ("data_unreadable", ("b",), (), {"where": "/data", "said": "y"}),
    ]


EMPTY = {"files": 0, "size_bytes": 0, "digest": ""}


def test_an_empty_directory_is_told_beside_those_that_have_data() -> None:
    assert found(("a", {}), ("b", EMPTY)) == [("data_empty", ("b",), (), {"where": "/data", "others": ("a",)})]
    assert found(("a", EMPTY), ("b", EMPTY)) == []


@pytest.mark.parametrize("odd", [{"there": False, **EMPTY}, {"problem": "x", "files": 9}, {"whole": False, "files": 9}])
def test_what_is_not_known_in_full_is_not_compared(odd: dict[str, Any]) -> None:
    kinds = {name for name, *_ in found(("a", {}), ("b", odd))}
    assert not kinds & {"data_empty", "data_differs", "data_changed"}


def test_what_fewer_hosts_have_is_the_odd_one() -> None:
    (differs,) = found(("a", {"files": 4}), ("b", {}), ("c", {}))
    versions = (("3 files of 3000000 bytes", ("b", "c")), ("4 files of 3000000 bytes", ("a",)))
    assert differs == ("data_differs", ("a",), (), {"where": "/data", "versions": versions})
    (changed,) = found(("a", {}), ("b", {"digest": "bb"}), ("c", {}))
    assert changed == ("data_changed", ("b",), (), {"where": "/data", "others": ("a", "c")})


def test_directories_are_judged_by_themselves() -> None:
    assert found(("a", {}), ("b", {"path": "/other", "files": 9})) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([{}], "3 files, 3.0 MB"),
        ([{}, {"files": 2, "size_bytes": 500_000}], "5 files, 3.5 MB"),
        ([{}, {"whole": False}], "6 files, 6.0 MB or more"),
        ([{}, {"there": False}], "missing"),
    ],
)
def test_what_a_host_has_is_told_in_short(told: list[dict[str, Any]], words: str) -> None:
    assert data_words(storage(data=[{**DATA, **each} for each in told])) == words


def test_data_is_looked_for_where_it_is_to_be_already() -> None:
    value = scene(cluster(dirs={"data": "/data"}))
    assert [data_places(value, host) for host in "abcd"] == [(), (), ("/data",), ("/data",)]
