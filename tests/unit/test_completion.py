"""Words that a shell completes: those of this directory's cluster, in bash behind a colon too."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from dtctl.cli import main
from dtctl.cli.completion import rejoined, whole_words
from dtctl.operations.history.record import record_of
from dtctl.operations.history.store import Memory
from dtctl.plan.roster import plan_roster
from tests.unit.clusters import cluster

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
    Memory().save(record_of(plan_roster(cluster()), "digits-20260101-000000-aaaa", 1.0))
    made = tmp_path / "project"
    made.mkdir()
    (made / "cluster.yaml").write_text(HERE)
    monkeypatch.chdir(made)
    return made


def completed(monkeypatch: pytest.MonkeyPatch, *words: str) -> list[str]:
    """What bash is offered; the last word is the one under the cursor."""
    monkeypatch.setenv("_DTCTL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "\n".join(["dtctl", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    monkeypatch.setattr("sys.argv", ["dtctl"])
    said = io.StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit):
        main()
    return said.getvalue().split()


def test_tasks_are_those_of_the_cluster_here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(monkeypatch, "logs", "wor") == ["worker:0", "worker:1", "worker"]
    assert completed(monkeypatch, "stop", "chief:0", "") == [
        "chief:0",
        "worker:0",
        "worker:1",
        "chief",
        "worker",
        "@a",
        "@b",
    ]


def test_bash_is_offered_what_follows_the_colon(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed(monkeypatch, "logs", "worker", ":") == ["0", "1"]
    assert completed(monkeypatch, "logs", "worker", ":", "1") == ["1"]
    assert completed(monkeypatch, "logs", "worker:") == ["worker:0", "worker:1"], "without ':' in COMP_WORDBREAKS"
    assert completed(monkeypatch, "logs", "@", "b") == ["@b"]


def test_where_to_run_a_command_is_completed_and_the_command_is_not(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completed(monkeypatch, "exec", "@", "b") == ["@b"]
    assert completed(monkeypatch, "exec", "chief:0", "wor") == ["worker:0", "worker:1", "worker"]
    assert completed(monkeypatch, "exec", "@", "a", "--", "wor") == []


def test_another_file_that_was_named_has_other_tasks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = project / "other.yaml"
    other.write_text(HERE.replace("chief", "ps"))
    assert "ps:0" in completed(monkeypatch, "logs", "-c", "other.yaml", "")


def test_a_run_that_was_named_has_its_own_tasks(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ps:1" in completed(monkeypatch, "logs", "--run", "digits-20260101-000000-aaaa", "")
    assert completed(monkeypatch, "logs", "--run", "here-20260101-000000-aaaa", "") == []
    assert completed(monkeypatch, "logs", "--run", "dig") == ["digits-20260101-000000-aaaa"]


def test_mistakes_in_the_file_complete_nothing_and_say_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "cluster.yaml").write_text("nmae: x\n")
    assert completed(monkeypatch, "logs", "") == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "joined", "begun"),
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
def test_words_that_bash_has_taken_apart_are_put_together(words: list[str], joined: list[str], begun: str) -> None:
    assert rejoined(words) == (joined, begun)


def test_other_shells_and_commands_are_left_alone() -> None:
    for environ in ({}, {"_DTCTL_COMPLETE": "complete_zsh", "COMP_WORDS": "dtctl\na\n:"}):
        before = dict(environ)
        with whole_words(environ):
            pass
        assert environ == before
