"""Runs whose files cannot be read, though they may be whole: they are told of, and nothing of them is removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dtctl.agent.host import files, machine, paths
from dtctl.agent.requests import damaged_runs, runs
from dtctl.agent.requests.down import _Removal
from dtctl.agent.run.runfiles import NEW, REMOVED

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
def test_a_run_that_cannot_be_read_is_told_of_with_the_reason(
    talk: Any, spec: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    cannot_be_read(monkeypatch, spec, reason)
    assert runs.every(talk) == []
    (found,) = damaged_runs.every(talk)
    problem = f"{spec} cannot be read: {os.strerror(reason)}"
    assert found.record() == {"run": "r-1", "host": "h1", "cluster": "c", "problem": problem}


def test_it_may_be_whole_so_that_it_stays_and_who_takes_it_down_hears_why(
    talk: Any, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spec.parent / "machine").write_text(machine.identity())
    assert [run.is_dead() for run in damaged_runs.every(talk)] == [True], "while it is damaged for certain"
    cannot_be_read(monkeypatch, spec, errno.EIO)
    (found,) = damaged_runs.of_cluster(talk, "c", "h1", None)
    assert not found.is_dead()
    with pytest.raises(OSError, match="Input/output error"):
        _Removal(talk).remove_damaged(found, {"by": "me", "grace_s": 0.0, "reason": "", "why": []})
    assert spec.exists()


@pytest.mark.parametrize("prefix", [NEW, REMOVED])
def test_one_that_is_being_made_or_removed_is_none(talk: Any, spec: Path, prefix: str) -> None:
    spec.parent.rename(spec.parents[2] / f"{prefix}0123")
    assert (runs.every(talk), list(damaged_runs.every(talk))) == ([], [])


def test_one_without_its_spec_is_damaged(talk: Any, spec: Path) -> None:
    spec.unlink()
    (damaged,) = damaged_runs.every(talk)
    assert runs.every(talk) == []
    assert damaged.problem == f"{spec} is missing"
