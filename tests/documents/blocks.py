"""What a page shows to be typed: commands, cluster files, and screens, which are compared with what is printed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.documents.typing_rules import ON_A_SLOW_MACHINE

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


ELIDED = "..."
"""A line that stands for any lines, in a screen that a page shows."""

_MASKS = (
    (r"\b[\w.-]+-\d{8}-\d{6}-[0-9a-f]{4}\b", "RUN"),
    (r"SHA256:[A-Za-z0-9+/=]+", "FINGERPRINT"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?", "TIME"),
    (r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS"),
    (r"(?:~|/)[\w./@-]*/(?=dtctl/|\.ssh/|digits\b)", "HOME/"),
    (r"\b(model\.ckpt-)\d+", r"\1N"),
    (r"\bloss \S+", "loss X"),
    (r"\b[\d.]+ steps/s", "X steps/s"),
    (r"\b\d+(\.\d+)?\s?(bytes|kB|MB|GB)\b", "SIZE"),
    (r"\b(?:\d+(?:\.\d+)?(?:ms|[dhms]))+\b", "SPAN"),
    (r"\b\d+\.\d+\b", "X"),
    (r"\b(step|steps|made|wrote|loss|accuracy|PID|pid|process) \d+", r"\1 N"),
    (r"\b\d{2,}\b", "N"),
    (r"[─━-]{3,}", "---"),
    (r"\s+", " "),
    (r"^((?:ps|worker):\d \S+ running) .*", r"\1 ..."),  # a task has no rate before its second step
    (r"^\d+ tasks (?:stopped|had already ended)(?=, \d+ left)", "tasks ended"),  # a slow reader stops it late
    (r"^goodput .*", "goodput ..."),  # where time went is another day's
)


def masked(line: str) -> str:
    for pattern, replacement in _MASKS:
        line = re.sub(pattern, replacement, line)
    return line.strip()


def differences(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """What a reader would wonder about; the order of lines of several hosts or tasks says nothing."""
    wanted = [masked(line) for line in shown if line.strip()]
    found = [masked(line) for line in printed if line.strip()]
    elided = ELIDED in wanted
    wanted = [line for line in wanted if line != ELIDED]
    missing = [f"shown, but not printed: {line}" for line in wanted if line not in found]
    surplus = [f"printed, but not shown: {line}" for line in found if line not in wanted and not _is_of_speed(line)]
    return missing + ([] if elided else surplus)


def _is_of_speed(line: str) -> bool:
    return any(re.fullmatch(pattern, line) for pattern in ON_A_SLOW_MACHINE)


def shortened(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """What was printed now, in the form in which the page shows it: with as many lines before and after the gap."""
    if ELIDED not in shown:
        return list(printed)
    gap = list(shown).index(ELIDED)
    after = len(shown) - gap - 1
    return [*printed[:gap], ELIDED, *(printed[-after:] if after else [])]
