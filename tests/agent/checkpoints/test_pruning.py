"""Old checkpoints go, and never one that a restore may need."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from dtctl.agent.host.budget import Budget
from dtctl.agent.rooms.checkpoints.records import Pruned
from dtctl.agent.rooms.checkpoints.single import prune_directory
from tests.agent.checkpoints.test_checkpoints import DATA, cut

STEPS = (100, 200, 300, 400)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Four checkpoints, a minute apart, and the file that lists them."""
    made = tmp_path / "output"
    made.mkdir()
    for number, step in enumerate(STEPS):
        for path in (DATA / "tf1_plain").glob("model.ckpt-100.*"):
            shutil.copy(path, made / path.name.replace("100", str(step)))
        (made / f"model.ckpt-{step}.meta").write_text("graph")
        for path in made.glob(f"model.ckpt-{step}.*"):
            os.utime(path, (1e9 + 60 * number, 1e9 + 60 * number))
    listed = "".join(f'all_model_checkpoint_paths: "model.ckpt-{step}"\n' for step in STEPS)
    (made / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-400"\n{listed}')
    return made


def pruned(directory: Path, keep: int, *, dry_run: bool = False, live: bool = False) -> Pruned:
    return prune_directory(str(directory), keep, dry_run, live, Budget(time.monotonic() + 60, 1000))


def left(directory: Path) -> list[int]:
    return sorted(int(path.stem.rpartition("-")[2]) for path in directory.glob("*.index"))


def test_the_newest_stay_and_the_list_names_what_is_left(directory: Path) -> None:
    result = pruned(directory, 2)
    assert left(directory) == [300, 400]
    assert [one["prefix"] for one in result["removed"]] == ["model.ckpt-200", "model.ckpt-100"]
    assert {path.name.split(".")[1].split("-")[1] for path in directory.glob("model*")} == {"300", "400"}
    assert result["freed_bytes"] == 2 * (397 + len("graph"))
    text = (directory / "checkpoint").read_text()
    assert sorted(text.splitlines()) == [
        'all_model_checkpoint_paths: "model.ckpt-300"',
        'all_model_checkpoint_paths: "model.ckpt-400"',
        'model_checkpoint_path: "model.ckpt-400"',
    ]


def test_dry_run_reports_the_same_and_removes_nothing(directory: Path) -> None:
    before = (directory / "checkpoint").read_text()
    result = pruned(directory, 1, dry_run=True)
    assert left(directory) == list(STEPS)
    assert (directory / "checkpoint").read_text() == before
    assert result["removed"] == pruned(directory, 1)["removed"]


def test_while_a_run_is_live_its_list_is_left_to_the_trainer(directory: Path) -> None:
    before = (directory / "checkpoint").read_text()
    result = pruned(directory, 1, live=True)
    assert left(directory) == [400]
    assert (directory / "checkpoint").read_text() == before
    assert not result["listed"]


def test_incomplete_checkpoints_neither_count_nor_are_removed(directory: Path) -> None:
    cut(directory / "model.ckpt-400.data-00000-of-00001")
    cut(directory / "model.ckpt-100.data-00000-of-00001")
    pruned(directory, 1)
    assert left(directory) == [100, 300, 400]


def test_where_the_newest_is_damaged_within_the_newest_sound_one_stays(directory: Path) -> None:
    for step in (400, 300):
        path = directory / f"model.ckpt-{step}.data-00000-of-00001"
        data = bytearray(path.read_bytes())
        data[3] ^= 1
        path.write_bytes(data)
    pruned(directory, 1)
    assert left(directory) == [200, 300, 400]


def test_without_a_sound_checkpoint_none_is_removed(directory: Path) -> None:
    for path in directory.glob("*.data-*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert pruned(directory, 1)["removed"] == []
    assert left(directory) == list(STEPS)


def test_the_one_that_a_restore_would_take_stays(directory: Path) -> None:
    (directory / "checkpoint").write_text('model_checkpoint_path: "/data/output/model.ckpt-100"\n')
    pruned(directory, 1)
    assert left(directory) == [100, 400]


def test_each_directory_keeps_its_own(directory: Path) -> None:
    shutil.copytree(directory, directory / "chief")
    pruned(directory, 3)
    assert left(directory) == left(directory / "chief") == [200, 300, 400]


def test_a_name_that_only_begins_alike_is_another_checkpoint(directory: Path) -> None:
    for path in list(directory.glob("model.ckpt-100.*")):
        shutil.copy2(path, directory / path.name.replace("100", "1001"))
    (directory / "model.ckpt-100.data-mine").touch()
    pruned(directory, 1)
    assert (directory / "model.ckpt-100.data-mine").exists()
