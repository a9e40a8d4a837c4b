"""Which ended runs are removed, and that unreadable ones are reported and kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.host import files, machine, paths
from dtctl.agent.records.kinds import made
from dtctl.agent.records.reasons import fact
from dtctl.agent.records.run_state import How
from dtctl.agent.records.spec import Spec
from dtctl.agent.requests import damaged_runs, orphans, runs
from dtctl.agent.requests.down import _Removal, expired
from dtctl.agent.run.runfiles import NEW, REMOVED
from tests.unit.agent.test_records import LED

ELSEWHERE = {**LED, "tasks": []}
Standing = tuple[Spec, "float | None", bool]


def standing(number: int, ended: float | None, *, current: bool = False, **fields: Any) -> Standing:
    """Of the run rNUMBER, the younger the higher."""
    spec = {"run": f"r{number}", "cluster": "c", "host": "h", "created": float(number), "ttl_s": None, "keep": 2}
    return made(Spec, **{**ELSEWHERE, **spec, **fields}), ended, current


def gone(*standings: Standing, now: float = 1000.0) -> list[str]:
    return sorted(run for run, _ in expired(standings, now))


def test_as_many_runs_that_have_ended_are_kept_as_the_newest_one_says() -> None:
    ended = [standing(number, 10.0) for number in range(4)]
    assert gone(*ended) == ["r0", "r1"]
    assert gone(*ended, standing(4, None, keep=0)) == ["r0", "r1", "r2", "r3"]
    assert gone(*ended, standing(4, None, keep=10)) == []


def test_a_run_that_lives_is_never_removed_and_not_counted() -> None:
    assert gone(standing(0, None), standing(1, None), standing(2, 10.0), standing(3, 10.0), standing(4, None)) == []
    assert gone(standing(0, None, ttl_s=1.0)) == []


def test_the_current_run_is_kept_whatever_the_number_but_not_past_its_ttl() -> None:
    assert gone(standing(0, 10.0, current=True, keep=0)) == []
    assert gone(standing(0, 10.0, current=True, ttl_s=900.0)) == ["r0"]


def test_each_run_has_its_own_ttl_counted_from_its_end() -> None:
    assert gone(standing(0, 10.0, ttl_s=100.0), standing(1, 950.0, ttl_s=100.0)) == ["r0"]
    assert gone(standing(0, 10.0, ttl_s=100.0), now=105.0) == []


def test_clusters_and_hosts_count_for_themselves() -> None:
    others = [standing(3, 10.0, cluster="d", keep=1), standing(4, 10.0, host="i", keep=1)]
    assert gone(standing(0, 10.0, keep=1), *others) == []
    assert gone(standing(0, 10.0, keep=1), standing(1, 10.0, keep=1), *others) == ["r0"]


def test_all_ended_runs_of_a_removed_cluster_are_removed() -> None:
    standings = [standing(0, 10.0, current=True), standing(1, None), standing(2, 10.0)]
    assert sorted(run for run, _ in expired(standings, 1000.0, over=True)) == ["r0", "r2"]


def test_the_reason_is_reported() -> None:
    runs = expired([standing(0, 10.0), standing(1, 10.0, ttl_s=1.0), standing(2, 10.0), standing(3, 10.0)], 1000.0)
    assert runs == {("r0", "h"): fact("newer_runs", count=3), ("r1", "h"): fact("past_ttl")}


REASONS = [errno.EACCES, errno.EIO, errno.EMFILE, errno.ESTALE]


@pytest.fixture
def talk(tmp_path: Path) -> Any:
    return SimpleNamespace(root=str(tmp_path))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    place = Path(paths.run_directory(str(tmp_path), "r-1", "h1"), "spec.json")
    place.parent.mkdir(parents=True)
    place.write_text("{}")
    current = Path(runs.current_path(str(tmp_path), "c", "h1"))
    current.parent.mkdir(parents=True)
    current.write_text("r-1\n")
    return place


def cannot_be_read(monkeypatch: pytest.MonkeyPatch, place: Path, reason: int) -> None:
    read = files.read

    def refuse(path: str, *most: int) -> bytes:
        if path == str(place):
            raise OSError(reason, os.strerror(reason), path)
        return read(path, *most)

    monkeypatch.setattr(files, "read", refuse)


@pytest.mark.parametrize("reason", REASONS)
def test_a_run_that_cannot_be_read_is_reported_with_the_reason(
    talk: Any, spec: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    cannot_be_read(monkeypatch, spec, reason)
    assert runs.every(talk) == []
    (found,) = damaged_runs.every(talk)
    problem = f"{spec} cannot be read: {os.strerror(reason)}"
    assert found.record() == {"run": "r-1", "host": "h1", "cluster": "c", "problem": problem}


def test_a_run_that_may_be_whole_stays_and_down_reports_why(
    talk: Any, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec.parent / "machine").write_text(machine.identity())
    assert [run.is_dead() for run in damaged_runs.every(talk)] == [True], "while it is damaged for certain"
    cannot_be_read(monkeypatch, spec, errno.EIO)
    whole, (found,) = damaged_runs.of_cluster(talk, "c", "h1", None)
    assert whole == []
    assert not found.is_dead()
    with pytest.raises(OSError, match="Input/output error"):
        _Removal(talk, None).remove_damaged(found, made(How, by="me", grace_s=0.0))
    assert spec.exists()


def test_down_of_a_cluster_ends_agents_of_a_run_without_files_that_may_be_its_own(
    talk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [(str(tmp_path / "r-2" / host), None, "gone") for host in ("h1", "h2")]
    monkeypatch.setattr(orphans, "without_files", lambda root: left)
    _, found = damaged_runs.of_cluster(talk, "c", "h1", None)
    assert [(one.id, one.host) for one in found] == [("r-2", "h1")], "it is what keeps `up` from this host"


@pytest.mark.parametrize("prefix", [NEW, REMOVED])
def test_run_that_is_being_made_or_removed_is_not_listed(talk: Any, spec: Path, prefix: str) -> None:
    spec.parent.rename(spec.parents[2] / f"{prefix}0123")
    assert (runs.every(talk), list(damaged_runs.every(talk))) == ([], [])


def test_run_without_its_spec_is_damaged(talk: Any, spec: Path) -> None:
    spec.unlink()
    (damaged,) = damaged_runs.every(talk)
    assert runs.every(talk) == []
    assert damaged.problem == f"{spec} is missing"
