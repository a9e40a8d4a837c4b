"""Words that a shell completes: those of this directory's cluster, in bash behind a colon too; and `--help`."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dtctl.cli import main
from dtctl.cli.completion import rejoined, whole_words
from dtctl.cli.table import GROUPS
from dtctl.operations.history import Memory
from dtctl.operations.run_record import record_of
from dtctl.plan import plan_roster
from tests.unit.clusters import cluster

RUN = "digits-20260101-000000-aaaa"
HERE = """\
name: here
hosts: {a: {transport: local}, b: {transport: local}}
jobs:
  chief: {hosts: a}
  worker: {hosts: [a, b]}
trainer: {command: [python, train.py]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster that was never started; what was started last is another directory's."""
    for name in ("XDG_STATE_HOME", "DTCTL_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    Memory().save(record_of(plan_roster(cluster()), RUN, 1.0))
    made = tmp_path / "project"
    made.mkdir()
    (made / "cluster.yaml").write_text(HERE)
    monkeypatch.chdir(made)
    return made


def completed(monkeypatch: pytest.MonkeyPatch, *args: str) -> list[str]:
    """What bash is offered; the last word is the one under the cursor."""
    monkeypatch.setenv("_DTCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["dtctl", *args]))
    monkeypatch.setenv("COMP_CWORD", str(len(args)))
    monkeypatch.setattr("sys.argv", ["dtctl"])
    output = io.StringIO()
    with redirect_stdout(output), pytest.raises(SystemExit):
        main()
    return output.getvalue().split()


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("logs wor", "worker:0 worker:1 worker"),
        ("stop chief:0 ''", "chief:0 worker:0 worker:1 chief worker @a @b"),
        ("logs worker :", "0 1"),
        ("logs worker : 1", "1"),
        ("logs worker:", "worker:0 worker:1"),  # without ':' in COMP_WORDBREAKS
        ("logs @ b", "@b"),
        ("logs worker -x @ b", "@b"),
        ("push --exclude wor", "worker:0 worker:1 worker"),
        ("logs -c other.yaml p", "ps:0 ps"),
        (f"logs --run {RUN} ps:", "ps:0 ps:1"),
        ("logs --run here-20260101-000000-aaaa ''", ""),
        ("logs --run dig", RUN),
    ],
)
def test_words_of_the_cluster_here_or_of_what_was_named(
    command: str, offered: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "other.yaml").write_text(HERE.replace("chief", "ps"))
    assert completed(monkeypatch, *shlex.split(command)) == offered.split()


def test_mistakes_in_the_file_complete_nothing_and_say_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "cluster.yaml").write_text("nmae: x\n")
    assert completed(monkeypatch, "logs", "") == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("args", "joined", "begun"),
    [
        (["logs", "worker", ":"], ["logs", "worker:"], "worker:"),
        (["logs", "worker", ":", "1"], ["logs", "worker:1"], "worker:"),
        (["logs", "worker", ":", ""], ["logs", "worker:", ""], ""),
        (["logs", "worker", ":", "0", "wor"], ["logs", "worker:0", "wor"], ""),
        (["up", "--set", "x", "=", "b"], ["up", "--set", "x=b"], "x="),
        (["logs", "worker:1"], ["logs", "worker:1"], ""),
        (["logs", "a", "@", "b"], ["logs", "a", "@b"], ""),
        ([], [], ""),
    ],
)
def test_words_split_by_bash_are_rejoined(args: list[str], joined: list[str], begun: str) -> None:
    assert rejoined(args) == (joined, begun)


def test_other_shells_and_commands_are_left_alone() -> None:
    for environ in ({}, {"_DTCTL_COMPLETE": "complete_zsh", "COMP_WORDS": "dtctl\na\n:"}):
        before = dict(environ)
        with whole_words(environ):
            pass
        assert environ == before


def shown() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dtctl", "--help"], capture_output=True, text=True, check=True, env={"COLUMNS": "80"}
    )
    return done.stdout


def test_the_help_shows_every_command_in_one_line_of_80_columns() -> None:
    lines = shown().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "COMMAND" not in line]
    for group in GROUPS.values():
        for name, entry in group.items():
            assert [line.split(maxsplit=1) for line in lines if line.startswith(f"  {name} ")] == [[name, entry.help]]
