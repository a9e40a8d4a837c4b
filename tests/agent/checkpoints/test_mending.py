"""Damaged checkpoints are set aside, and TensorFlow's own state file then names the newest complete one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.mending import mend
from tests.agent.checkpoints.test_checkpoints import DATA, complete


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """model.ckpt-100 and, newer, model.ckpt-200, of which a part is missing."""
    made = tmp_path / "output"
    shutil.copytree(DATA / "tf1_plain", made)
    for path in made.iterdir():
        age = 0 if "200" in path.name else 3600
        os.utime(path, (1e9 - age, 1e9 - age))
    os.truncate(made / "model.ckpt-200.data-00000-of-00001", 10)
    return made


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_damaged_one_is_moved_and_nothing_is_lost(directory: Path) -> None:
    before = len(names(directory))
    [text] = mend(str(directory))
    assert "model.ckpt-200 is damaged" in text
    assert names(directory) == ["damaged", "model.ckpt-100.data-00000-of-00001", "model.ckpt-100.index"]
    assert len(names(directory / "damaged")) == before - 2
    [found] = reading.report([str(directory)])
    assert complete(found)["step"] == 100
    assert found["incomplete"] == []
    assert mend(str(directory)) == []


@pytest.mark.parametrize("place", ["", "/data/output/"])
def test_the_state_file_names_the_newest_complete_one_in_the_same_way(directory: Path, place: str) -> None:
    state = directory / "checkpoint"
    state.write_text(
        f'model_checkpoint_path: "{place}model.ckpt-200"\n'
        f'all_model_checkpoint_paths: "{place}model.ckpt-100"\n'
        f'all_model_checkpoint_paths: "{place}model.ckpt-200"\n'
        "all_model_checkpoint_timestamps: 1.5\n"
        "all_model_checkpoint_timestamps: 2.5\n"
        "last_preserved_timestamp: 0.5\n"
    )
    assert len(mend(str(directory))) == 1
    assert sorted(state.read_text().splitlines()) == [
        f'all_model_checkpoint_paths: "{place}model.ckpt-100"',
        "all_model_checkpoint_timestamps: 1.5",
        "last_preserved_timestamp: 0.5",
        f'model_checkpoint_path: "{place}model.ckpt-100"',
    ]


def test_each_directory_is_mended_by_what_is_complete_in_it(directory: Path) -> None:
    below = directory / "worker_1"
    below.mkdir()
    for path in list(directory.glob("model.ckpt-200*")):
        path.rename(below / path.name)
    assert mend(str(directory)) == []
    assert len(names(below)) == 2


def test_without_a_complete_checkpoint_nothing_is_touched(directory: Path) -> None:
    os.truncate(directory / "model.ckpt-100.data-00000-of-00001", 10)
    before = names(directory)
    assert mend(str(directory)) == []
    assert names(directory) == before


def test_a_directory_that_does_not_exist_needs_no_mending(tmp_path: Path) -> None:
    assert mend(str(tmp_path / "output")) == []
