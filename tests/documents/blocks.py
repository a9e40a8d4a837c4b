"""What a page shows to be typed: blocks of commands, screens, and cluster files, in their order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_EXPLANATION = re.compile(r"\s{2,}.*|\s+# .*")
"""What follows a command on its line: two blanks, or a comment, begin the words about it."""

_PROGRAMS = re.compile(r"(?:dtctl|cd|make|pip|pipx|uv|python3?|ssh[-a-z]*|echo|git|man|cp|mkdir|\.|source) ?")


@dataclass(frozen=True)
class Typed:
    """One command, and the screen that is shown below it, if any."""

    page: str
    line: int
    command: str
    screen: tuple[str, ...] | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


@dataclass(frozen=True)
class Written:
    """A cluster.yaml, or sections of one."""

    page: str
    line: int
    text: str

    @property
    def is_whole(self) -> bool:
        return re.search(r"^name:", self.text, re.MULTILINE) is not None


Block = Typed | Written


def blocks(page: str) -> list[Block]:
    """Of a page, named from the project's top."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return list(_blocks(page, lines))


def _blocks(page: str, lines: list[str]) -> Iterator[Block]:
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.lstrip().startswith("```"):
            end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
            yield from _fenced(page, number + 2, line.strip().removeprefix("```"), lines[number + 1 : end])
            number = end
        elif line.startswith("    ") and _PROGRAMS.match(line[4:]):
            yield Typed(page, number + 1, bare(line[4:]))
        number += 1


def _fenced(page: str, first: int, language: str, lines: list[str]) -> Iterator[Block]:
    if language == "yaml":
        yield Written(page, first, "\n".join(lines) + "\n")
    if language != "console":
        return
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for at, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield Typed(page, first + at, lines[at][2:], tuple(lines[at + 1 : end]))


def bare(line: str) -> str:
    """The command of a line, without the words about it."""
    return _EXPLANATION.sub("", line).rstrip()
