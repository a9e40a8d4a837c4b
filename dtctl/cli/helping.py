"""The help of a command: two examples below its options, and colours on a terminal."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from dtctl import rooms

Example = tuple[str, str]
"""The words after `dtctl`, and what they do."""

_HEADING = re.compile(r"^([A-Z][^:\n]*:)( .*)?$", re.MULTILINE)
_NAMES = re.compile(r"^( {2})((?:-{1,2}[A-Za-z][\w-]*|\[[A-Z_|a-z]+\]|[a-z]+)(?:, -{1,2}[\w-]+)*)(?= |$)", re.MULTILINE)
_BOLD, _CYAN, _GREEN, _PLAIN = "\x1b[1m", "\x1b[36m", "\x1b[32m", "\x1b[0m"


@cache
def examples() -> dict[str, list[Example]]:
    """Command -> its examples. Those of a room are in its folder."""
    found: dict[str, list[Example]] = {}
    own = [Path(rooms.__file__).with_name(name) / "examples.txt" for name, room in rooms.ROOMS.items() if room.commands]
    for file in (Path(__file__).with_name("examples.txt"), *own):
        for line in file.read_text("utf-8").splitlines() if file.is_file() else ():
            words, apart, does = line.partition("    ")
            if apart:
                found.setdefault(words.split()[0], []).append((words, does))
    return found


def write_examples(command: str, formatter: Any) -> None:
    """Writes a section with the examples of a command, each with what it does beside or below it."""
    shown = examples().get(command, [])
    if shown:
        with formatter.section("Examples"):
            formatter.write_dl([(f"dtctl {words}", does) for words, does in shown], col_max=48)


def colored_help(words: str) -> str:
    """The help with bold headings, and the names of options and commands in a colour."""
    head, examples_at, own = words.partition("\nExamples:\n")
    head = _NAMES.sub(rf"\1{_CYAN}\2{_PLAIN}", head)
    own = re.sub(r"^( {2})(dtctl .*?)(?= {2}|$)", rf"\1{_GREEN}\2{_PLAIN}", own, flags=re.MULTILINE)
    return _HEADING.sub(rf"{_BOLD}\1{_PLAIN}\2", f"{head}{examples_at}{own}")
