"""Whatever is typed wrongly: the reason, the remedy and the documented exit code, and never a traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dtctl.agent.records import answers
from dtctl.agent.records.kinds import made
from dtctl.cli.commands import stop as module
from dtctl.errors import ExitCode, UsageError
from dtctl.operations.gc import GcResult
from dtctl.render.terminal import console
from tests.unit.conftest import Typed
from tests.unit.wrong_commands import WRONG_COMMANDS, WrongCommand


@pytest.mark.parametrize("wrong", WRONG_COMMANDS, ids=lambda wrong: wrong.words)
def test_a_wrong_command_is_shown_the_reason_and_a_remedy(wrong: WrongCommand, typed: Typed) -> None:
    ended, _, said = typed(wrong.words)
    assert ended == wrong.code == ExitCode(wrong.code), said
    assert wrong.reason in said, said
    assert wrong.remedy in said, said
    assert "Traceback" not in said


def test_each_command_is_typed_wrongly_and_each_row_has_a_reason_and_a_remedy() -> None:
    from dtctl.cli.app import Commands

    assert len({wrong.words for wrong in WRONG_COMMANDS}) == len(WRONG_COMMANDS) >= 150
    assert set(Commands()) <= {shlex.split(wrong.words)[0] for wrong in WRONG_COMMANDS}
    assert all(wrong.reason and wrong.remedy for wrong in WRONG_COMMANDS)


WITHOUT = ["status", "stop", "up", "logs", "down -y", "validate", "plan", "push", "trust", "runs", "gc", "wait"]


@pytest.mark.parametrize("words", WITHOUT)
def test_without_a_cluster_here_nothing_is_done(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, said = typed(words)
    assert ended == ExitCode.USAGE, said
    assert "no cluster" in said
    assert "dtctl init" in said


def test_a_file_of_the_other_ending_is_named(typed: Typed) -> None:
    Path("cluster.yaml").rename("cluster.yml")
    for words in ("validate", "status", "stop", "up"):
        ended, _, said = typed(words)
        assert ended == ExitCode.USAGE, said
        assert "there is no cluster.yaml here, but a cluster.yml" in said
        assert "mv " in said


NOTHING: answers.GcResult = made(
    answers.GcResult, dry_run=True, processes=[], survivors=[], runs=[], bundles=[], files=[], freed_bytes=0
)
BUNDLE: answers.GcResult = {**NOTHING, "bundles": ["b1"], "freed_bytes": 7}
PROCESS: answers.GcResult = {**NOTHING, "processes": [{"pid": 1, "command": "python", "run": "demo-1"}]}


def asked(found: answers.GcResult, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> list[str]:
    questions: list[str] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(console, "confirm", questions.append)
    module._ask(GcResult({"a": found}, {}))
    return questions


def test_a_person_is_asked_before_anything_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(BUNDLE, monkeypatch, terminal=True) == ["Remove these files?"]
    assert asked(PROCESS, monkeypatch, terminal=True) == ["End these processes and remove the files?"]
    assert asked(NOTHING, monkeypatch, terminal=True) == []


def test_where_nobody_can_answer_processes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(BUNDLE, monkeypatch, terminal=False) == []
    with pytest.raises(UsageError):
        asked(PROCESS, monkeypatch, terminal=False)
