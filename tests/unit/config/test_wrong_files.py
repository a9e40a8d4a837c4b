"""Whatever is wrong with a cluster file: its place, the reason, the remedy and exit code 3, and never a traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.config import load_cluster
from dtctl.errors import ConfigError, ExitCode, Problem
from dtctl.render.errors import show_error
from tests.unit.config import wrong_files
from tests.unit.config.mistakes import GOOD
from tests.unit.config.wrong_files import Wrong

WRONG = [*wrong_files.NOT_YAML, *wrong_files.KEYS, *wrong_files.VALUES, *wrong_files.SENSE]
FILE = Path("cluster.yaml")


@pytest.fixture(autouse=True)
def _in_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(file: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_cluster(file)
    assert caught.value.exit_code == ExitCode.CONFIG
    return caught.value


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.mistake)
def test_a_wrong_file_is_told_its_place_the_reason_and_a_remedy(
    wrong: Wrong, capsys: pytest.CaptureFixture[str]
) -> None:
    FILE.write_bytes(wrong.text if isinstance(wrong.text, bytes) else wrong.text.encode())
    error = refusal(FILE)
    place = f"cluster.yaml:{wrong.place}" if wrong.place else "cluster.yaml"
    assert any(_is_told(one, place, wrong) for one in error.problems), error.problems
    show_error(error)
    shown = capsys.readouterr().err
    assert f"{place}: {wrong.reason[:60]}" in shown
    assert f"hint: {wrong.remedy[:60]}" in shown
    assert shown.splitlines()[-1].startswith("error: ")


def _is_told(problem: Problem, place: str, wrong: Wrong) -> bool:
    said = problem.summary.startswith(wrong.reason) and problem.hint.startswith(wrong.remedy)
    return said and str(problem.place) == place


def test_each_problem_has_a_remedy() -> None:
    for wrong in WRONG:
        FILE.write_bytes(wrong.text if isinstance(wrong.text, bytes) else wrong.text.encode())
        assert all(problem.hint for problem in refusal(FILE).problems), wrong.mistake


def test_the_table_is_long_and_names_no_mistake_twice() -> None:
    assert len({wrong.mistake for wrong in WRONG}) == len(WRONG) >= 100


PATHS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "nothing": (lambda path: None, "there is no such file", "dtctl init"),
    "a directory": (lambda path: path.mkdir(), "this is a directory, expected a file", "rename cluster.yaml"),
    "a pipe": (lambda path: os.mkfifo(path), "the file cannot be read: it is a pipe to which nobody", "ls -l"),
    "a link to itself": (lambda path: path.symlink_to(path), "the file cannot be read: too many", "ls -l"),
    "a link to nothing": (lambda path: path.symlink_to("gone"), "there is no such file", "dtctl init"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "this is not a cluster file: it has more", "dtctl init"),
    "no file": (lambda path: path.symlink_to("/dev/null"), "the file is empty, expected a mapping", "dtctl init"),
}


@pytest.mark.parametrize("made", PATHS)
def test_what_is_no_file_is_told_as_what_it_is(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dtctl.config.load.WRITER_S", 0.05)
    make, reason, remedy = PATHS[made]
    make(FILE)
    [problem] = refusal(FILE).problems
    assert str(problem.place) == "cluster.yaml"
    assert problem.summary.startswith(reason)
    assert problem.hint.startswith(remedy)


def test_a_pipe_that_somebody_writes_to_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, GOOD.encode())
    os.close(writing)
    try:
        assert load_cluster(Path(f"/dev/fd/{reading}")).name == "digits"
    finally:
        os.close(reading)
