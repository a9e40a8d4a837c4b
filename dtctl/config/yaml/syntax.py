"""What is wrong with a text that is not YAML, in words for the person who has to mend it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from yaml.parser import ParserError
from yaml.reader import ReaderError

from dtctl.errors import ConfigError, Place, Problem

START = "dtctl init    writes a cluster.yaml to start from; dtctl explain    tells about every key"

NEAR = 200
"""Characters of a line to each side of a mistake; to look through longer ones takes time with their square."""
_CONFLICT = re.compile(r"^(?:<<<<<<<|=======|>>>>>>>)(?: .*)?$", re.MULTILINE)
_LOOK_ALIKE = re.compile("[\u00a0\u2007\u202f\u3000\u200b\u2060\uff1a]")
"""Blanks and colons that an editor, a page or a chat program has put in place of those of the keyboard."""
_RANGE_IN_BRACKETS = re.compile(r"[\w.-]+\[[0-9][0-9,-]*\]")


@dataclass(frozen=True)
class _Wording:
    """Our words for one of PyYAML's complaints; it has no codes, only texts. Any other complaint is shown as it is."""

    complaint: str
    summary: str
    hint: str = ""
    at_start: bool = False
    """The place to mend is where the thing begins, not where PyYAML gave up."""


_WORDINGS = (
    _Wording(
        "mapping values are not allowed here",
        "a ':' where no key can stand",
        "indent as the line above, which needs a blank behind its own ':'; put a value that holds ': ' in quotes",
    ),
    _Wording("could not find expected ':'", "a line without ':'", "write KEY: VALUE", at_start=True),
    _Wording(
        "expected <block end>",
        "this does not line up with what stands above it",
        "keys of one mapping and dashes of one list start in the same column, and a quote further up may not be closed",
    ),
    _Wording("expected ',' or ']', but got '<stream end>'", "this list in [...] does not end", "close it with ]", True),
    _Wording(
        "expected ',' or '}', but got '<stream end>'", "this mapping in {...} does not end", "close it with }", True
    ),
    _Wording("expected ',' or ']'", "this list in [...] is not closed, or lacks a comma", "close it with ]"),
    _Wording("expected ',' or '}'", "this mapping in {...} is not closed, or lacks a comma", "close it with }"),
    _Wording(
        "found unexpected end of stream", "a quoted text does not end", "close it with the quote it began with", True
    ),
    _Wording("expected the node content", "a value is missing here", "write one, or take the key out"),
    _Wording(
        "found unexpected document separator",
        "a quoted text does not end before the document does",
        "close it with the quote it began with",
    ),
    _Wording("found incompatible YAML document", "a %YAML line of another version", "take the line out"),
    _Wording("found undefined alias", "this alias has no anchor", "write &name at the value that *name stands for"),
    _Wording(
        "found unknown escape character", "an unknown escape after \\", "use single quotes: they take \\ as it is"
    ),
    _Wording("that cannot start any token", "no value can begin with this character", "put the value in quotes"),
)


def syntax_problem(error: yaml.YAMLError, text: str, name: str, *, places: bool) -> Problem:
    complaint: str = getattr(error, "problem", None) or str(error)
    wording = next((wording for wording in _WORDINGS if wording.complaint in complaint), _Wording("", complaint))
    line, column = _position(error, text, at_start=wording.at_start)
    place = Place(name, line, column) if places else Place(name)
    if isinstance(error, ReaderError):
        return Problem(place, f"this is not text: it holds the character {_code(error)}", "take it out")
    if found := _CONFLICT.search(text) or _look_alike(text, line):
        at = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
        return Problem(Place(name, *at) if places else place, *_of_others(found[0]))
    tab = _tab(text, line, column)
    if tab is not None:
        where = Place(name, *tab) if places else place
        return Problem(where, "a tab where YAML takes spaces only", "replace each tab outside of quotes with spaces")
    lines = text.splitlines()
    near = lines[line - 1][max(0, column - NEAR) : column + NEAR] if 0 < line <= len(lines) else ""
    if _in_brackets(error, text) and (unquoted := _RANGE_IN_BRACKETS.search(near)):
        return Problem(place, "a range inside [...] or {...} needs quotes", f'write "{unquoted[0]}"')
    return Problem(place, f"this is not YAML: {wording.summary}", wording.hint)


def _look_alike(text: str, line: int) -> re.Match[str] | None:
    """In the line of the complaint, or in the one above."""
    starts = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
    return _LOOK_ALIKE.search(text, starts[max(0, line - 2)], starts[min(line, len(starts) - 1)])


def _of_others(found: str) -> tuple[str, str]:
    """Of what another program has put into the file: what is wrong with it, and the remedy."""
    if len(found) > 1:
        return "a merge is not finished here", "keep one side, and take the lines <<<<<<<, ======= and >>>>>>> out"
    meant = "':'" if found == "\uff1a" else "a blank"
    return f"the character U+{ord(found):04X} looks like {meant}, and is none", f"type {meant} in its place"


def _in_brackets(error: yaml.YAMLError, text: str) -> bool:
    """What PyYAML was reading when it gave up began with a bracket."""
    began = getattr(error, "context_mark", None)
    return isinstance(error, ParserError) and began is not None and text[began.index : began.index + 1] in ("[", "{")


def second_document(place: Place) -> ConfigError:
    return ConfigError(
        [Problem(place, "a second document begins here; a cluster file holds one", "keep one file each")]
    )


def _position(error: yaml.YAMLError, text: str, *, at_start: bool) -> tuple[int, int]:
    if isinstance(error, ReaderError):
        before = text[: error.position]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    marks = [getattr(error, name, None) for name in ("problem_mark", "context_mark")]
    mark = next((mark for mark in (reversed(marks) if at_start else marks) if mark is not None), None)
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)


def _code(error: ReaderError) -> str:
    # The stubs call it bytes; for text it is the code point (yaml/reader.py, check_printable).
    code = error.character if isinstance(error.character, int) else ord(error.character[:1])
    return f"U+{code:04X}"


def _tab(text: str, line: int, column: int) -> tuple[int, int] | None:
    """The tab at the place of the complaint, or in the indentation of its line or of the one above."""
    lines = text.splitlines()
    if 0 < line <= len(lines) and lines[line - 1][column - 1 : column] == "\t":
        return line, column
    for number in (line, line - 1):
        indentation = re.match(r"\s*", lines[number - 1] if 0 < number <= len(lines) else "")
        if indentation and "\t" in indentation[0]:
            return number, indentation[0].index("\t") + 1
    return None
