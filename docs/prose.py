"""Lines of Markdown, filled to 100 columns: paragraphs and items of lists; tables, code and headings stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

WIDTH = 100

_ITEM = re.compile(r"(\s*)([-*]|\d+\.)\s+")
_STAYS = re.compile(r"\||#|<!--|!\[|---")
_CODE = re.compile(r"`[^`]*`")
_SHORT = 60
"""Code up to this length stays on one line: who looks for a command looks for it there."""

_SPACE_IN_CODE = "\N{NO-BREAK SPACE}"

_BEGINS_SOMETHING = re.compile(r"(?:[-+*#>|]|\d+[.)]|#+)$")
"""What would be an item, a heading or a table at the start of a line."""


def filled(page: str) -> str:
    """The page with its paragraphs filled again."""
    return "\n".join(line for block in _blocks(page.split("\n")) for line in block)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Paragraphs, filled; every other line as it is."""
    paragraph: list[str] = []
    fenced = False
    blank = True
    for line in lines:
        begins_code = line.startswith("    ") and blank
        stays = fenced or line.strip() == "" or begins_code or _STAYS.match(line.lstrip()) or line.lstrip()[:3] == "```"
        if stays or _ITEM.match(line):
            yield _fill(paragraph)
            paragraph = []
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if stays:
            yield [line]
        else:
            paragraph.append(line)
        blank = begins_code or line.strip() == ""
    yield _fill(paragraph)


def _fill(paragraph: list[str]) -> list[str]:
    if not paragraph:
        return []
    item = _ITEM.match(paragraph[0])
    head = item.group() if item else ""
    text = " ".join(line.strip() for line in [paragraph[0][len(head) :], *paragraph[1:]])
    words = _CODE.sub(_kept_together, text).split(" ")
    indent = " " * len(head) if item else ""
    rows = [row.replace(_SPACE_IN_CODE, " ") for row in _rows(filter(None, words), WIDTH - len(head))]
    return [(head if number == 0 else indent) + row for number, row in enumerate(rows)]


def _kept_together(code: re.Match[str]) -> str:
    return code.group().replace(" ", _SPACE_IN_CODE) if len(code.group()) <= _SHORT else code.group()


def _rows(words: Iterable[str], width: int) -> Iterator[str]:
    row = ""
    for word in words:
        if row and len(row) + 1 + len(word) > width and not _BEGINS_SOMETHING.match(word):
            yield row
            row = word
        else:
            row = f"{row} {word}" if row else word
    yield row
