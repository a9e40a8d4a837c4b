"""`dtctl --help`: every command in one group, in one line of its own."""

from __future__ import annotations

import subprocess
import sys

from dtctl.cli.table import GROUPS


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
