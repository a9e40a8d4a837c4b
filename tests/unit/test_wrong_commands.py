"""Whatever is typed wrongly: the reason, the remedy and the documented exit code, and never a traceback."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtctl.cli import main
from dtctl.errors import ExitCode
from dtctl.render.terminal import console
from tests.unit import wrong_commands
from tests.unit.wrong_commands import Row

WRONG = [
    *wrong_commands.WORDS,
    *wrong_commands.FILES,
    *wrong_commands.TASKS,
    *wrong_commands.VALUES,
    *wrong_commands.AWAY,
]


@pytest.fixture(autouse=True)
def _at_a_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home and a project of its own; what `main` changes in the process is as before afterwards."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "cluster.yaml").write_text(wrong_commands.CLUSTER)
    (project / "train.py").touch()
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "SSH_AUTH_SOCK", "DTCTL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
    console.choose_color("auto")


def typed(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    monkeypatch.setattr("sys.argv", ["dtctl", *shlex.split(words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *capsys.readouterr()


@pytest.mark.parametrize(("words", "code", "reason", "remedy"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_command_is_told_the_reason_and_a_remedy(
    words: str, code: int, reason: str, remedy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, _, said = typed(words, monkeypatch, capsys)
    assert ended == code == ExitCode(code), said
    assert reason in said, said
    assert remedy in said, said
    assert "Traceback" not in said


def test_the_table_is_long_and_tries_each_command() -> None:
    from dtctl.cli.app import Commands

    assert len({row[0] for row in WRONG}) == len(WRONG) >= 150
    typed_ones = {word for row in WRONG for word in shlex.split(row[0])[:1]}
    assert set(Commands()) <= typed_ones


def rows_are_sound(rows: list[Row]) -> bool:
    return all(reason and remedy for _, _, reason, remedy in rows)


def test_each_row_has_a_reason_and_a_remedy() -> None:
    assert rows_are_sound(WRONG)


WITHOUT = ["status", "stop", "up", "logs", "down -y", "validate", "plan", "push", "trust", "runs", "gc", "wait"]


@pytest.mark.parametrize("words", WITHOUT)
def test_without_a_cluster_here_nothing_is_done(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, said = typed(words, monkeypatch, capsys)
    assert ended == ExitCode.USAGE, said
    assert "no cluster" in said
    assert "dtctl init" in said


def test_a_file_of_the_other_ending_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cluster.yaml").rename("cluster.yml")
    for words in ("validate", "status", "stop", "up"):
        ended, _, said = typed(words, monkeypatch, capsys)
        assert ended == ExitCode.USAGE, said
        assert "there is no cluster.yaml here, but a cluster.yml" in said
        assert "mv " in said
