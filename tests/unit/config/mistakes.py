"""Cluster files with a mistake, and what is said of each: read from mistakes.txt.

There `-` and `+` change lines of GOOD, and `=` are the lines of a whole file; what is said of it follows. `…` stands
for any part of a line, such as most of a list that is tested elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GOOD = """\
name: digits
hosts:
  ps-a: 10.0.0.10
  gpu-[1-4]: {ssh: "10.0.0.2[1-4]", gpus: 2}
jobs:
  ps: {hosts: ps-a}
  worker: {hosts: "gpu-[1-4]"}
trainer:
  command: [python, train.py]
"""


def swap(old: str, new: str) -> str:
    assert GOOD.count(old) >= 1
    return GOOD.replace(old, new, 1)


def top(line: str) -> str:
    """The good file with a line before `hosts`, its second."""
    return swap("hosts:", f"{line}\nhosts:")


def trainer(lines: str) -> str:
    """The good file with more lines of `trainer`, from its tenth on."""
    return f"{GOOD}  {lines}\n"


class Mistake(NamedTuple):
    """The messages are those of `dtctl validate`, less the name of the file."""

    group: str
    name: str
    text: str
    messages: str

    @property
    def pattern(self) -> str:
        """Of the messages as they may be."""
        return ".*".join(map(re.escape, self.messages.split("…")))


def _mistakes() -> Iterator[Mistake]:
    group = ""
    for block in Path(__file__).with_suffix(".txt").read_text().split("\n\n"):
        if block.startswith("## "):
            group = block.removeprefix("## ")
            continue
        lines: dict[str, list[str]] = {"# ": [], "- ": [], "+ ": [], "= ": []}
        messages: list[str] = []
        for line in block.rstrip("\n").split("\n"):
            lines.get(line[:2].ljust(2), messages).append(line)
        old, new, whole = ("".join(f"{line[2:]}\n" for line in lines[mark]) for mark in ("- ", "+ ", "= "))
        text = whole or f"\n{GOOD}".replace(f"\n{old}", f"\n{new}", 1)[1:]
        assert text != GOOD, block
        name = "".join(lines["# "])[2:] or messages[0]
        yield Mistake(group, name, text, "\n".join(messages))


MISTAKES = list(_mistakes())
