"""Marks of who has last written to an output directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from dtctl.agent.host import outputs


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "root").mkdir()
    return str(tmp_path / "root")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoint").touch()
    return tmp_path / "out"


def write(root: str, directory: Path, cluster: str = "a", now: float = 1.0) -> None:
    outputs.write(root, [str(directory)], cluster, f"{cluster}-1", "me@desk", "/p/cluster.yaml", now)


def owners(root: str, directory: Path, *live: str) -> list[str]:
    return [mark["cluster"] for mark in outputs.found(root, [str(directory)], lambda: live)]


def test_the_last_one_to_write_is_the_owner_and_nothing_is_added_to_the_directory(root: str, output: Path) -> None:
    assert owners(root, output) == []
    write(root, output)
    write(root, output, "b")
    assert owners(root, output) == ["b"]
    assert [path.name for path in output.iterdir()] == ["checkpoint"]
    assert {path.name for path in output.parent.iterdir()} == {"out", "root"}


def test_an_empty_directory_and_one_that_was_made_anew_have_no_owner(root: str, output: Path) -> None:
    write(root, output)
    (output / "checkpoint").unlink()
    assert owners(root, output) == []
    (output / "checkpoint").touch()
    assert owners(root, output) == ["a"]
    output.rename(output.parent / "kept")
    shutil.copytree(output.parent / "kept", output)
    assert owners(root, output) == []


def test_an_empty_directory_belongs_to_a_run_that_will_still_write_there(root: str, output: Path) -> None:
    write(root, output)
    (output / "checkpoint").unlink()
    assert owners(root, output, "a-1") == ["a"]
    assert owners(root, output, "b-1") == []


def test_a_directory_is_known_by_whatever_links_lead_to_it(root: str, output: Path) -> None:
    link = output.parent / "link"
    link.symlink_to(output)
    write(root, link)
    assert owners(root, output) == ["a"]


@pytest.mark.parametrize("text", ["", "{}", '{"path": "/else"}', "[" * 100_000])
def test_a_mark_that_somebody_has_damaged_is_none(root: str, output: Path, text: str) -> None:
    write(root, output)
    (mark,) = Path(root, "outputs").iterdir()
    mark.write_text(text)
    assert owners(root, output) == []


def test_a_mark_that_was_moved_to_another_directorys_place_is_none(root: str, output: Path) -> None:
    write(root, output)
    (mark,) = Path(root, "outputs").iterdir()
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "path": "/else"}))
    assert owners(root, output) == []


def test_nobody_waits_for_a_fifo_in_place_of_a_mark(root: str, output: Path) -> None:
    write(root, output)
    (mark,) = Path(root, "outputs").iterdir()
    mark.unlink()
    os.mkfifo(mark)
    assert owners(root, output) == []


def test_the_oldest_marks_are_forgotten(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_MARKS", 2)
    places = [tmp_path / name for name in "abc"]
    for age, place in enumerate(places):
        place.mkdir()
        (place / "x").touch()
        write(root, place)
        for mark in Path(root, "outputs").iterdir():
            os.utime(mark, (mark.stat().st_mtime - 10, mark.stat().st_mtime - 10 - age))
    assert len(list(Path(root, "outputs").iterdir())) == 2
    assert owners(root, places[0]) == []
    assert owners(root, places[2]) == ["a"]


def test_a_directory_that_is_not_there_has_no_mark_and_is_no_mistake(root: str, tmp_path: Path) -> None:
    write(root, tmp_path / "nowhere")
    assert owners(root, tmp_path / "nowhere") == []
