"""Whatever is typed wrongly: the reason, the remedy and the documented exit code, never a traceback, and JSON
where it is asked for.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dtctl.agent.records import gc as answers
from dtctl.agent.records.kinds import made
from dtctl.cli import check_working_directory, wants_json
from dtctl.cli.app import app
from dtctl.cli.commands import stop as module
from dtctl.errors import ExitCode, UsageError
from dtctl.operations.gc import GcResult
from dtctl.render.terminal import console
from tests import of_rooms
from tests.unit.conftest import Typed
from tests.unit.wrong_commands import CLUSTER, WRONG_COMMANDS, WrongCommand


@pytest.mark.parametrize("wrong", WRONG_COMMANDS, ids=lambda wrong: wrong.words)
def test_a_wrong_command_is_shown_the_reason_and_a_remedy(wrong: WrongCommand, typed: Typed) -> None:
    ended, _, stderr = typed(wrong.words)
    assert ended == wrong.code == ExitCode(wrong.code), stderr
    assert wrong.reason in stderr, stderr
    assert wrong.remedy in stderr, stderr
    assert "Traceback" not in stderr


def test_each_wrong_command_is_there_once_and_has_a_reason_and_a_remedy() -> None:
    assert len({wrong.words for wrong in WRONG_COMMANDS}) == len(WRONG_COMMANDS) >= 150
    assert all(wrong.reason and wrong.remedy for wrong in WRONG_COMMANDS)


WITHOUT = ["status", "stop", "up", "logs", "down -y", "validate", "plan", "push", "trust", "runs", "gc", "wait"]


@pytest.mark.parametrize("command", WITHOUT)
def test_without_a_cluster_here_nothing_is_done(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, stderr = typed(command)
    assert ended == ExitCode.USAGE, stderr
    assert "no cluster" in stderr
    assert "dtctl init" in stderr


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


def test_removal_asks_for_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(BUNDLE, monkeypatch, terminal=True) == ["Remove these files?"]
    assert asked(PROCESS, monkeypatch, terminal=True) == ["End these processes and remove the files?"]
    assert asked(NOTHING, monkeypatch, terminal=True) == []


def test_without_a_terminal_processes_are_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(BUNDLE, monkeypatch, terminal=False) == []
    with pytest.raises(UsageError):
        asked(PROCESS, monkeypatch, terminal=False)


WITHOUT_CLUSTER = {
    "ssh": "becomes OpenSSH's own client",
    "logs": "prints lines, which -o jsonl gives one by one",
    "top": "fills the screen",
    "tensorboard": "runs a server for a browser",
    "report": "writes a page",
    "dashboard": "runs a server for a browser",
}
"""Commands that need no -o json, and why."""

WORDS = {
    **of_rooms.table("WORDS"),
    "explain": "nosuchword",
    "schema": "nosuch",
    "restart": "worker:0",
    "scale": "worker=1",
    "drain": "node-1",
    "undrain": "node-1",
    "replace": "node-1 node-3 -y",
    "down": "-y",
    "gc": "-y",
    "trust": "-y",
}
"""What else has to be typed for a command to come as far as its mistake."""

NO_FILE = {"init", "import", "explain", "schema"}
"""Commands that read no cluster file."""


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


SPEAKING = [name for name, command in commands().items() if any(option.opts[:1] == ["-o"] for option in command.params)]


def objects(output: str) -> list[Any]:
    return [json.loads(line) for line in output.splitlines()]


def test_every_command_has_json_output_or_a_reason_why_not() -> None:
    assert [name for name in commands() if name not in SPEAKING and name not in WITHOUT_CLUSTER] == []


@pytest.mark.parametrize("name", SPEAKING)
def test_a_command_line_that_cannot_be_read_is_one_error_in_json(name: str, typed: Typed) -> None:
    code, out, stderr = typed(f"{name} --zzz -o json")
    (error,) = objects(stderr)
    assert (code, out) == (2, "")
    assert (error["apiVersion"], error["kind"], error["exitCode"]) == ("dtctl/v1", "Error", 2)
    assert error["error"] == f"dtctl {name} has no option --zzz"
    assert error["hint"] == f"dtctl {name} -h    shows what it takes"


@pytest.mark.parametrize("name", SPEAKING)
def test_a_mistake_is_one_error_in_json_with_its_place(name: str, typed: Typed) -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("ssh: {port: 1,", "ssh: {prot: 1,"))
    arguments = WORDS.get(name, "")
    code, _, stderr = typed(f"{name} {arguments}" if "-o json" in arguments else f"{name} -o json {arguments}")
    error = objects(stderr)[-1]
    assert (error["kind"], error["exitCode"]) == ("Error", code)
    assert error["error"]
    assert code == (2 if name in NO_FILE else 3)
    if name not in NO_FILE:
        (problem,) = error["problems"]
        assert (problem["line"], problem["column"]) == (2, 7)
        assert problem["file"].endswith("cluster.yaml")
        assert problem["hint"] == "did you mean 'port'?"


@pytest.mark.parametrize("name", ["status", "events", "stop", "runs"])
def test_hosts_that_cannot_be_reached_are_shown_in_json(name: str, typed: Typed) -> None:
    hosts_are_unreachable_in_json(typed(f"{name} -o json"))


def hosts_are_unreachable_in_json(printed: tuple[int, str, str]) -> None:
    code, _, lines = printed
    documents = objects(lines)
    assert code == 4
    assert {one["kind"] for one in documents} <= {"Error", "HostError", "Note"}
    assert [one["exitCode"] for one in documents if one["kind"] == "Error"] == [4]
    assert documents[-1]["kind"] == "Error"
    assert "node-" in documents[-1]["error"] or documents[-1]["errors"]


def test_a_result_without_a_host_is_one_document(typed: Typed) -> None:
    code, out, _ = typed("plan -o json")
    assert code == 0
    assert json.loads(out)["kind"] == "Plan"


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("status -o json", True),
        ("status -ojson", True),
        ("--color never status --output=json", True),
        ("logs -o jsonl", True),
        ("status -o text", False),
        ("status json", False),
        ("", False),
        ("status -o", False),
        ("exec worker:0 -- tool -o json", False),
        ("ssh worker:0 tool -o json", False),
    ],
)
def test_json_output_is_recognised_in_an_invalid_command_line(command: str, wanted: bool) -> None:
    assert wants_json(shlex.split(command)) is wanted


def test_a_current_directory_that_was_removed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(UsageError, match="the current directory was removed"):
        check_working_directory()
