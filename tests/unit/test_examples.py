"""The examples in the help of each command: two of each, and each is a command that dtctl takes."""

from __future__ import annotations

import shlex

import pytest

from dtctl.cli.app import Commands
from dtctl.cli.helping import colored_help, examples
from dtctl.cli.table import COMMANDS


def test_every_command_has_two_examples() -> None:
    assert {name: len(examples().get(name, ())) for name in COMMANDS} == dict.fromkeys(COMMANDS, 2)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_what_it_takes(name: str) -> None:
    for words, does in examples()[name]:
        command, *rest = shlex.split(words)
        assert command == name
        assert does
        assert Commands()[name].make_context(name, rest).params is not None


def test_help_names_options_in_a_colour_and_headings_in_bold() -> None:
    plain = "Usage: dtctl up [OPTIONS]\n\nOptions:\n  -f, --follow  Follow.\n\nExamples:\n  dtctl up -f  start\n"
    shown = colored_help(plain)
    assert "\x1b[1mUsage:\x1b[0m dtctl up" in shown
    assert "  \x1b[36m-f, --follow\x1b[0m  Follow." in shown
    assert "  \x1b[32mdtctl up -f\x1b[0m  start" in shown
    for code in ("\x1b[0m", "\x1b[1m", "\x1b[36m", "\x1b[32m"):
        shown = shown.replace(code, "")
    assert shown == plain
