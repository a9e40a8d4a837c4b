"""Where a run's checkpoints may lie, and which of earlier runs' the next one does not see."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import directories
from dtctl.agent.checkpoints.directories import Run, saved, values
from tests.agent.checkpoints.test_checkpoints import DATA

NOW = 1_700_000_000.0


def run_of(tree: Path, *args: str, known: tuple[str, ...] = (), name: str = "r-1", created: float = NOW) -> Run:
    """On the lead's host."""
    task = {"id": "worker:0", "argv": ["python", "train.py", *args]}
    spec: Any = {"run": name, "created": created, "checkpoint_dirs": list(known), "lead": "worker:0", "tasks": [task]}
    spec.update(host="a", coordinator={"host": "a"})
    return Run(spec, str(tree), list)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def save(directory: Path, at: float = NOW + 60.0) -> None:
    shutil.copytree(DATA / "tf1_plain", directory)
    for path in directory.iterdir():
        os.utime(path, (at - ("100" in path.name), at - ("100" in path.name)))


def told(new: Run, *before: Run, marked: tuple[str, ...] = ()) -> list[tuple[str | None, str, bool]]:
    found = saved(new, before, marked)
    return [(one["run"], f"{one['dir']}/{one['checkpoint']['prefix']}", one["seen"]) for one in found]


def test_values_of_a_command_line() -> None:
    words = ["python", "--train_dir=out", "--steps=5", "--flag", "gs://bucket/x", "--empty=", "/data/x"]
    assert values(words) == ["python", "out", "5", "/data/x"]


def test_the_same_relative_directory_is_seen(tree: Path) -> None:
    save(tree / "out")
    before = run_of(tree, "--train_dir=out")
    assert told(run_of(tree, "--train_dir=out", name="r-2"), before) == [("r-1", f"{tree}/out/model.ckpt-200", True)]


def test_another_relative_directory_is_not(tree: Path) -> None:
    save(tree / "out")
    before = run_of(tree, "--train_dir=out")
    assert told(run_of(tree, "--train_dir=out2", name="r-2"), before) == [("r-1", f"{tree}/out/model.ckpt-200", False)]


def test_a_directory_that_no_argument_names_is_seen_from_the_same_working_directory_alone(tree: Path) -> None:
    save(tree / "out")
    new = run_of(tree, name="r-2")
    assert told(new, run_of(tree)) == [("r-1", f"{tree}/out/model.ckpt-200", True)]
    (tree.parent / "other").mkdir()
    moved = run_of(tree.parent / "other", name="r-2")
    assert told(moved, run_of(tree)) == [("r-1", f"{tree}/out/model.ckpt-200", False)]


def test_another_output_directory_of_the_file_is_told(tree: Path, tmp_path: Path) -> None:
    save(tmp_path / "a")
    before = run_of(tree, known=(str(tmp_path / "a"),))
    new = run_of(tree, known=(str(tmp_path / "b"),), name="r-2")
    assert told(new, before) == [("r-1", f"{tmp_path}/a/model.ckpt-200", False)]
    assert told(new, marked=(str(tmp_path / "a"),)) == [(None, f"{tmp_path}/a/model.ckpt-200", False)]


def test_what_was_there_before_any_run_was_not_saved_by_one(tree: Path, tmp_path: Path) -> None:
    save(tmp_path / "model", at=NOW - 3600.0)
    assert told(run_of(tree, name="r-2"), run_of(tree, f"--init_from={tmp_path}/model")) == []


def test_a_link_to_the_same_directory_is_the_same(tree: Path, tmp_path: Path) -> None:
    save(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    [(_, _, seen)] = told(run_of(tree, f"--out={tmp_path}/link"), run_of(tree, known=(str(tmp_path / "a"),)))
    assert seen


def test_without_a_setting_only_directories_with_a_checkpoint_are_told(tree: Path, tmp_path: Path) -> None:
    run = run_of(tree, f"--out={tmp_path}/out", "--out=here")
    assert directories.report(run) == []
    save(tmp_path / "out")
    save(tree / "here")
    assert [(one["dir"], one["guessed"]) for one in directories.report(run)] == [
        (str(tree), True),
        (str(tmp_path / "out"), True),
    ]
