"""Commands with a mistake each, as people type them, and the answer to each: read from wrong_commands.txt, and those of
rooms from wrong_commands_of_rooms.txt and WRONG of tests/of_rooms.

There a block has the exit code and the words, a reason and a remedy. They are typed in a directory with CLUSTER as its
cluster.yaml; nobody listens where its hosts are. In the words '' is an empty one, and quotes count as for a shell.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dtctl.cli.table import COMMANDS
from tests import of_rooms

CLUSTER = """\
name: demo
ssh: {port: 1, connect_timeout: 5s, identity_file: key}
hosts:
  node-[1-3]: {ssh: 127.0.0.1}
jobs:
  ps: {hosts: [node-1]}
  worker: {hosts: "node-[1-2]"}
spares: [node-3]
trainer:
  command: [python, train.py]
"""


class WrongCommand(NamedTuple):
    words: str
    code: int
    reason: str
    remedy: str


def _read(block: str) -> WrongCommand:
    command, reason, remedy = block.splitlines()
    code, _, arguments = command.partition(" ")
    return WrongCommand(arguments, int(code), reason.strip(), remedy.strip())


def _blocks(name: str) -> list[str]:
    return _split(Path(__file__).with_name(name).read_text())


def _split(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#")).strip("\n").split("\n\n")


WRONG_COMMANDS_OF_ROOMS = [
    *(_read(block) for block in _blocks("wrong_commands_of_rooms.txt")),
    *(_read(block) for text in of_rooms.texts("WRONG") for block in _split(text)),
]
WRONG_COMMANDS = [
    *(_read(block) for block in _blocks("wrong_commands.txt")),
    *(one for one in WRONG_COMMANDS_OF_ROOMS if one.words.split()[0] in COMMANDS),
]
"""Without those of a room that this dtctl does not have."""
