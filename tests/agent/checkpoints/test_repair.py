"""Damaged checkpoints are set aside, and TensorFlow's own state file then names the newest complete one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.repair import loss, prepare_restore, repair_directory
from tests.agent.checkpoints.test_checkpoints import DATA, complete


def copied(directory: Path) -> Path:
    """model.ckpt-100 and, newer, model.ckpt-200."""
    shutil.copytree(DATA / "tf1_plain", directory)
    for path in directory.iterdir():
        age = 0 if "200" in path.name else 3600
        os.utime(path, (1e9 - age, 1e9 - age))
    return directory


def damaged_beside_a_sound_one(directory: Path) -> Path:
    """model.ckpt-100 and, newer, model.ckpt-200, of which a part is missing."""
    made = copied(directory)
    os.truncate(made / "model.ckpt-200.data-00000-of-00001", 10)
    return made


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return damaged_beside_a_sound_one(tmp_path / "output")


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_damaged_one_is_moved_and_nothing_is_lost(directory: Path) -> None:
    before = len(names(directory))
    [text] = repair_directory(str(directory))
    assert "model.ckpt-200 is damaged" in text
    assert names(directory) == ["damaged", "model.ckpt-100.data-00000-of-00001", "model.ckpt-100.index"]
    assert len(names(directory / "damaged")) == before - 2
    [found] = reading.report([str(directory)])
    assert complete(found)["step"] == 100
    assert found["incomplete"] == []
    assert repair_directory(str(directory)) == []


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
    assert len(repair_directory(str(directory))) == 1
    assert sorted(state.read_text().splitlines()) == [
        f'all_model_checkpoint_paths: "{place}model.ckpt-100"',
        "all_model_checkpoint_timestamps: 1.5",
        "last_preserved_timestamp: 0.5",
        f'model_checkpoint_path: "{place}model.ckpt-100"',
    ]


def test_each_directory_is_repaired_from_its_own_complete_checkpoints(directory: Path) -> None:
    below = directory / "worker_1"
    below.mkdir()
    for path in list(directory.glob("model.ckpt-200*")):
        path.rename(below / path.name)
    assert repair_directory(str(directory)) == []
    assert len(names(below)) == 2


def test_without_a_complete_checkpoint_nothing_is_touched(directory: Path) -> None:
    os.truncate(directory / "model.ckpt-100.data-00000-of-00001", 10)
    before = names(directory)
    assert repair_directory(str(directory)) == []
    assert names(directory) == before


def test_a_missing_directory_needs_no_repair(tmp_path: Path) -> None:
    assert repair_directory(str(tmp_path / "output")) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, (status.st_atime, status.st_mtime))


@pytest.fixture
def flipped(tmp_path: Path) -> Path:
    """model.ckpt-100, and the newer model.ckpt-200 with a byte that differs: by its sizes it is complete."""
    made = copied(tmp_path / "flipped")
    flip(made / "model.ckpt-200.data-00000-of-00001")
    (made / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-200"\n')
    return made


def test_bytes_that_differ_are_found_where_a_trainer_could_not_restore_them(flipped: Path) -> None:
    assert repair_directory(str(flipped)) == []
    [text] = repair_directory(str(flipped), verify_all=True)
    assert text.startswith("checkpoint model.ckpt-200 is damaged (a part of embedding does not match its checksum)")
    assert (flipped / "checkpoint").read_text() == 'model_checkpoint_path: "model.ckpt-100"\n'


def test_a_damaged_one_with_a_sound_one_beside_it_is_no_loss(flipped: Path) -> None:
    assert loss([str(flipped)]) is None


def test_the_only_one_that_is_damaged_is_a_loss_and_one_elsewhere_is_named(flipped: Path, tmp_path: Path) -> None:
    for path in flipped.glob("model.ckpt-100*"):
        path.unlink()
    lost = loss([str(flipped)])
    assert lost is not None
    assert lost["path"] == f"{flipped}/model.ckpt-200"
    assert lost["problem"] == "a part of embedding does not match its checksum"
    assert lost["elsewhere"] is None
    shutil.copytree(DATA / "tf1_plain", tmp_path / "other")
    lost = loss([str(flipped)], [str(tmp_path / "other")])
    assert lost is not None
    assert lost["elsewhere"] == f"{tmp_path}/other/model.ckpt-200"


def test_two_that_are_both_damaged_are_a_loss(flipped: Path) -> None:
    os.truncate(flipped / "model.ckpt-100.index", 30)
    assert loss([str(flipped)]) is not None


def test_without_any_checkpoint_nothing_is_lost(tmp_path: Path) -> None:
    assert loss([str(tmp_path)]) is None
    assert loss([]) is None


def test_the_only_checkpoint_is_set_aside_only_with_allow_scratch(flipped: Path) -> None:
    for path in flipped.glob("model.ckpt-100*"):
        path.unlink()
    assert repair_directory(str(flipped), verify_all=True) == []
    [text] = repair_directory(str(flipped), verify_all=True, scratch=True)
    assert "set aside" in text
    assert names(flipped) == ["damaged"]
    assert "checkpoint" in names(flipped / "damaged"), "or TensorFlow would look for what it names"


def test_keras_files_are_never_set_aside(flipped: Path) -> None:
    (flipped / "model.weights.h5").write_bytes(b"cut")
    assert len(repair_directory(str(flipped), verify_all=True)) == 1
    assert "model.weights.h5" in names(flipped)


def test_the_report_names_what_was_done_and_the_checkpoint_that_will_be_restored(directory: Path) -> None:
    found = prepare_restore([str(directory)], [], "quick", 3, scratch=False)
    assert (found["attempt"], found["how"], found["step"], found["lost"]) == (3, "quick", 100, None)
    assert ["model.ckpt-200 is damaged" in text for text in found["done"]] == [True]


def test_report_names_a_lost_only_checkpoint_unless_training_may_start_over(flipped: Path) -> None:
    for path in flipped.glob("model.ckpt-100*"):
        path.unlink()
    lost = prepare_restore([str(flipped)], [], "full", 3, scratch=False)["lost"]
    assert lost is not None
    assert lost["path"] == f"{flipped}/model.ckpt-200"
    found = prepare_restore([str(flipped)], [], "full", 3, scratch=True)
    assert (found["lost"], found["step"], len(found["done"])) == (None, None, 1)
