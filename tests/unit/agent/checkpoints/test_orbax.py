"""Checkpoints of Orbax are found by their directories, and are complete when their save has ended."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import formats, reading
from dtctl.agent.host.budget import Budget, Spent
from tests.unit.agent.checkpoints.test_keras_files import hdf5

ENDED = {"item_handlers": {"default": "StandardCheckpointHandler"}, "commit_timestamp_nsecs": 1795471791397796842}
BEGUN = {**ENDED, "commit_timestamp_nsecs": None}


def saved(place: Path, metadata: object = ENDED, *, committed: bool = True) -> Path:
    """As orbax-checkpoint 0.12 lays it out."""
    (place / "default" / "d").mkdir(parents=True)
    (place / "default" / "manifest.ocdbt").write_bytes(b"m" * 100)
    (place / "default" / "d" / "d6c1e93b").write_bytes(b"d" * 900)
    if metadata is not None:
        (place / "_CHECKPOINT_METADATA").write_text(metadata if isinstance(metadata, str) else json.dumps(metadata))
    if committed:
        (place / "commit_success.txt").touch()
    return place


def told(directory: Path) -> list[tuple[str, Any, bool, str]]:
    (report,) = reading.report([str(directory)])
    assert report["problem"] is None
    return [(one["prefix"], one["step"], one["complete"], one["kind"]) for one in report["all"]]


def test_saves_of_a_manager_are_found_newest_first(tmp_path: Path) -> None:
    for step in (100, 200):
        saved(tmp_path / str(step))
        os.utime(tmp_path / str(step) / "_CHECKPOINT_METADATA", (step, step))
    assert told(tmp_path) == [("200", 200, True, "orbax"), ("100", 100, True, "orbax")]
    (report,) = reading.report([str(tmp_path)])
    assert report["newest_complete"] is not None
    assert report["newest_complete"]["size_bytes"] == 1000 + len(json.dumps(ENDED))
    newest = reading.newest([str(tmp_path)])
    assert newest is not None
    assert newest["step"] == 200


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("100", 100),
        ("checkpoint_100", 100),
        ("run-7", 7),
        ("best", None),
        ("v2", None),
        ("100.orbax-checkpoint-tmp", 100),
    ],
)
def test_the_step_is_in_the_name(name: str, step: int | None) -> None:
    assert formats.orbax_step(name) == formats.orbax_step(f"checkpoints/{name}") == step


@pytest.mark.parametrize("name", ["300.orbax-checkpoint-tmp", "300.orbax-checkpoint-tmp-1795471791"])
def test_a_save_in_progress_is_incomplete(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "200")
    os.utime(tmp_path / "200" / "_CHECKPOINT_METADATA", (200, 200))
    saved(tmp_path / name, committed=False)
    (report,) = reading.report([str(tmp_path)])
    assert [(one["step"], one["complete"]) for one in report["all"]] == [(300, False), (200, True)]
    assert report["incomplete"][0]["problem"] == "the save has not ended, or was interrupted"
    assert report["newest_complete"] is not None
    assert report["newest_complete"]["step"] == 200


@pytest.mark.parametrize(
    ("metadata", "committed", "complete"),
    [
        (ENDED, True, True),
        (ENDED, False, True),
        (BEGUN, True, True),
        (BEGUN, False, False),
        ("{", False, False),
        ("[" * 100_000, False, False),
        ("[]", False, False),
        (None, True, True),
    ],
)
def test_it_is_complete_when_its_save_has_ended(
    tmp_path: Path, metadata: object, committed: bool, complete: bool
) -> None:
    saved(tmp_path / "5", metadata, committed=committed)
    assert told(tmp_path) == [("5", 5, complete, "orbax")]


def test_directories_of_older_versions_are_known(tmp_path: Path) -> None:
    for place in ("1", "2/default"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "_METADATA").write_text("{}")
    assert sorted(told(tmp_path)) == [("1", 1, True, "orbax"), ("2", 2, True, "orbax")]


def test_they_are_found_one_directory_further_down_beside_others(tmp_path: Path) -> None:
    saved(tmp_path / "checkpoints" / "100")
    (tmp_path / "checkpoints" / "latest.weights.h5").write_bytes(hdf5(2, 200))
    (tmp_path / "logs" / "100").mkdir(parents=True)
    assert sorted(told(tmp_path)) == [
        ("checkpoints/100", 100, True, "orbax"),
        ("checkpoints/latest.weights.h5", None, True, "keras"),
    ]


def test_metadata_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    saved(tmp_path / "1", None, committed=False)
    os.mkfifo(tmp_path / "1" / "_CHECKPOINT_METADATA")
    saved(tmp_path / "2", None, committed=False)
    (tmp_path / "2" / "_CHECKPOINT_METADATA").symlink_to("/dev/zero")
    assert [complete for _, _, complete, _ in told(tmp_path)] == [False, False]


def test_a_directory_of_too_many_files_costs_no_more_than_the_budget(tmp_path: Path) -> None:
    saved(tmp_path / "1")
    with pytest.raises(Spent):
        formats.orbax_size_bytes(str(tmp_path / "1"), Budget(time.monotonic() + 60.0, 2))
