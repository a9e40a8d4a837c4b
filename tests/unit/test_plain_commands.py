"""A command without options is called without the parser, and gets just what the parser would have given it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import typer

from dtctl.cli.app import Commands

NAMES = list(Commands())


def recorded(monkeypatch: pytest.MonkeyPatch, seen: list[dict[str, Any]]) -> Commands:
    """Commands that do nothing but note what they are given."""
    commands = Commands()
    genuine = commands._function

    def function(name: str) -> Callable[..., None]:
        real = genuine(name)

        def note(**values: Any) -> None:
            seen.append(values)

        signature = inspect.signature(real, eval_str=True)
        note.__signature__ = signature  # type: ignore[attr-defined]
        note.__annotations__ = {key: one.annotation for key, one in signature.parameters.items()}
        note.__name__ = name
        return note

    monkeypatch.setattr(commands, "_function", function)
    return commands


@pytest.mark.parametrize("name", NAMES)
def test_without_words_a_command_gets_the_same_by_both_ways(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    commands = recorded(monkeypatch, seen)
    plain = commands.plain([name])
    if plain is None:  # it needs an argument
        return
    for command in (plain, commands[name]):
        command.main([], prog_name="dtctl", standalone_mode=False)
    assert seen[0] == seen[1]
    assert {key: type(value) for key, value in seen[0].items()} == {key: type(one) for key, one in seen[1].items()}


def test_most_commands_are_called_so() -> None:
    assert {name for name in NAMES if Commands().plain([name]) is not None} >= {"status", "up", "stop", "logs", "down"}


@pytest.mark.parametrize("words", [[], ["nothing"], ["status", "-o"], ["--help"], ["--version"], ["execute"]])
def test_whatever_else_is_typed_is_parsed(words: list[str]) -> None:
    assert Commands().plain(words) is None


def test_the_exit_code_is_that_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = Commands()

    def refuse() -> None:
        raise typer.Exit(3)

    monkeypatch.setattr(commands, "_function", lambda name: refuse)
    plain = commands.plain(["status"])
    assert plain is not None
    with pytest.raises(SystemExit) as ended:
        plain(args=[], prog_name="dtctl status")
    assert ended.value.code == 3
