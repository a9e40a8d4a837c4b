"""Every command with -o json: what a program reads on stdout and on stderr is JSON, errors too."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dtctl.cli import wants_json
from dtctl.cli.app import app
from tests.unit.conftest import Typed
from tests.unit.wrong_commands import CLUSTER

WITHOUT = {
    "ssh": "becomes OpenSSH's own client",
    "logs": "prints lines, which -o jsonl gives one by one",
    "top": "fills the screen",
    "tensorboard": "runs a server for a browser",
    "report": "writes a page",
    "dashboard": "runs a server for a browser",
}
"""Commands that need no -o json, and why."""

WORDS = {
    "init": "--template nosuch",
    "explain": "nosuchword",
    "schema": "nosuch",
    "exec": "--home -o json -- true",
    "restart": "worker:0",
    "replace": "node-1 node-3 -y",
    "down": "-y",
    "gc": "-y",
    "trust": "-y",
}
"""What else has to be typed for a command to come as far as its mistake."""

NO_FILE = {"init", "explain", "schema"}
"""Commands that read no cluster file."""


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


SPEAKING = [name for name, command in commands().items() if any(option.opts[:1] == ["-o"] for option in command.params)]


def objects(said: str) -> list[Any]:
    return [json.loads(line) for line in said.splitlines()]


def test_every_command_has_it_or_a_reason() -> None:
    assert [name for name in commands() if name not in SPEAKING and name not in WITHOUT] == []


@pytest.mark.parametrize("name", SPEAKING)
def test_a_command_line_that_cannot_be_read_is_one_error_in_json(name: str, typed: Typed) -> None:
    code, out, said = typed(f"{name} --zzz -o json")
    (error,) = objects(said)
    assert (code, out) == (2, "")
    assert (error["apiVersion"], error["kind"], error["exitCode"]) == ("dtctl/v1", "Error", 2)
    assert error["error"] == f"dtctl {name} has no option --zzz"
    assert error["hint"] == f"dtctl {name} -h    shows what it takes"


@pytest.mark.parametrize("name", SPEAKING)
def test_a_mistake_is_one_error_in_json_with_its_place(name: str, typed: Typed) -> None:
    Path("cluster.yaml").write_text(CLUSTER.replace("ssh: {port: 1,", "ssh: {prot: 1,"))
    words = WORDS.get(name, "")
    code, _, said = typed(f"{name} {words}" if "-o json" in words else f"{name} -o json {words}")
    error = objects(said)[-1]
    assert (error["kind"], error["exitCode"]) == ("Error", code)
    assert error["error"]
    assert code == (2 if name in NO_FILE else 3)
    if name not in NO_FILE:
        (problem,) = error["problems"]
        assert (problem["line"], problem["column"]) == (2, 7)
        assert problem["file"].endswith("cluster.yaml")
        assert problem["hint"] == "did you mean 'port'?"


@pytest.mark.parametrize("name", ["status", "events", "checkpoints", "stop", "runs"])
def test_hosts_that_cannot_be_reached_are_shown_in_json(name: str, typed: Typed) -> None:
    code, _, lines = typed(f"{name} -o json")
    said = objects(lines)
    assert code == 4
    assert {one["kind"] for one in said} <= {"Error", "HostError", "Note"}
    assert [one["exitCode"] for one in said if one["kind"] == "Error"] == [4]
    assert said[-1]["kind"] == "Error"
    assert "node-" in said[-1]["error"] or said[-1]["errors"]


def test_a_result_without_a_host_is_one_document(typed: Typed) -> None:
    for words, kind in (("init x -o json", "Init"), ("init --list -o json", "Templates"), ("plan -o json", "Plan")):
        code, out, _ = typed(words)
        assert code == 0
        assert json.loads(out)["kind"] == kind
    assert (Path("x") / "cluster.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "wanted"),
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
def test_it_is_seen_in_a_command_line_that_may_make_no_sense(words: str, wanted: bool) -> None:
    assert wants_json(shlex.split(words)) is wanted
