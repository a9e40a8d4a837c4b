"""`dtctl --help`: every command in one group, in one line of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dtctl.cli.app import GROUPS, OTHER, Commands, Dtctl

LISTED = [name for group in GROUPS.values() for name in group]


def shown() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "dtctl", "--help"], capture_output=True, text=True, check=True, env={"COLUMNS": "80"}
    )
    return done.stdout


def test_every_command_is_in_exactly_one_group() -> None:
    assert sorted(LISTED) == sorted(Commands())


def test_the_help_shows_every_command_in_one_line_of_80_columns() -> None:
    lines = shown().splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and "COMMAND" not in line]
    for group in GROUPS.values():
        for name, text in group.items():
            assert [line.split(maxsplit=1) for line in lines if line.startswith(f"  {name} ")] == [[name, text]]


def test_a_command_without_a_group_is_listed_last_with_its_own_first_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GROUPS, "Start", {name: text for name, text in GROUPS["Start"].items() if name != "push"})
    context = (group := Dtctl(name="dtctl")).make_context("dtctl", [], resilient_parsing=True)
    formatter = context.make_formatter()
    group.format_commands(context, formatter)
    last = " ".join(formatter.getvalue().partition(f"{OTHER}:")[2].split())
    assert last == "push Send the code to the hosts and start nothing."
