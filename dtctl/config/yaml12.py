"""YAML 1.2 with the core schema (yaml.org/spec/1.2.2, chapter 10.3), on PyYAML's parser.

PyYAML reads YAML 1.1: `no` is false, 2222:22 is 133342, 017 is 15, and of two equal keys the last wins in silence. Here
only true and false are booleans, and a second key is refused. Anchors and merge keys (`<<`) are kept, although 1.2 has
dropped the latter: files with several similar jobs read better with them, and other tools of the field accept them.
ruamel.yaml, set to 1.2, still makes a number of 0b1 and 1_000 and a date of 2020-01-01, takes half as long again,
and sets no limit to depth and aliases.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.events import StreamEndEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import ParserError
from yaml.reader import ReaderError

from dtctl.config.document import MOST_PROBLEMS, Document, KeyPath, Marks, Scalar, dotted
from dtctl.dataclass import dataclass
from dtctl.errors import ConfigError, Place, Problem

START = "dtctl init    writes a cluster.yaml to start from; dtctl explain    describes every key"

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
    """The place to correct is where the thing begins, not where PyYAML gave up."""


def _wording(complaint: str) -> _Wording:
    known = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    found = next((one for one in known if one["complaint"] in complaint), None)
    return _Wording(**found) if found else _Wording("", complaint)


def syntax_problem(error: yaml.YAMLError, text: str, name: str) -> Problem:
    complaint: str = getattr(error, "problem", None) or str(error)
    wording = _wording(complaint)
    line, column = _position(error, text, at_start=wording.at_start)
    place = Place(name, line, column)
    if isinstance(error, ReaderError):
        return Problem(place, f"this is not text: it holds the character {_code(error)}", "take it out")
    if found := _CONFLICT.search(text) or _look_alike(text, line):
        at = text.count("\n", 0, found.start()) + 1, found.start() - text.rfind("\n", 0, found.start())
        return Problem(Place(name, *at), *_of_others(found[0]))
    if tab := _tab(text, line, column):
        return Problem(
            Place(name, *tab), "a tab where YAML takes spaces only", "replace each tab outside of quotes with spaces"
        )
    lines = text.splitlines()
    near = lines[line - 1][max(0, column - NEAR) : column + NEAR] if 0 < line <= len(lines) else ""
    if _in_brackets(error, text) and (unquoted := _RANGE_IN_BRACKETS.search(near)):
        return Problem(place, "a range inside [...] or {...} needs quotes", f'write "{unquoted[0]}"')
    return Problem(place, f"this is not YAML: {wording.summary}", wording.hint)


def _look_alike(text: str, line: int) -> re.Match[str] | None:
    """A look-alike character in the line that PyYAML reports, or in the line above."""
    starts = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
    return _LOOK_ALIKE.search(text, starts[max(0, line - 2)], starts[min(line, len(starts) - 1)])


def _of_others(found: str) -> tuple[str, str]:
    """Summary and hint for text that another program has put into the file."""
    if len(found) > 1:
        return "a merge is not finished here", "keep one side, and take the lines <<<<<<<, ======= and >>>>>>> out"
    meant = "':'" if found == "\uff1a" else "a blank"
    return f"the character U+{ord(found):04X} looks like {meant}, and is none", f"type {meant} in its place"


def _in_brackets(error: yaml.YAMLError, text: str) -> bool:
    """Whether PyYAML failed inside brackets or braces."""
    began = getattr(error, "context_mark", None)
    return isinstance(error, ParserError) and began is not None and text[began.index : began.index + 1] in ("[", "{")


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


MOST_VALUES = 20_000
"""Aliases of aliases multiply (the `billion laughs`), and so do merge keys; no cluster has this many settings."""
MOST_NODES = 30_000
"""Keys and values as they are written. PyYAML takes a second for these."""
MOST_DEPTH = 50
MOST_TEXT = 1_000_000
"""Characters in all values, those of aliases counted each time."""
LONGEST_NUMBER = 100
"""Digits. Longer ones are text: Python refuses to convert thousands, and no setting is such a number."""

_TOO_DEEP = "brackets or mappings are nested too deeply"
_NO_ALIAS = "write the value itself in place of *name"
_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (_TAG + name for name in ("null", "bool", "int", "float", "str", "merge"))
_RESOLVERS = (
    (_NULL, re.compile(r"(?:null|Null|NULL|~|)\Z")),
    (_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")),
    (_INT, re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")),
    (
        _FLOAT,
        re.compile(
            r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
    ),
    (_MERGE, re.compile(r"<<\Z")),
)


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the plain scalars of the core schema."""

    yaml_implicit_resolvers = {None: list(_RESOLVERS)}  # noqa: RUF012 (PyYAML's name; None: whatever the first letter)

    _nodes = 0
    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """Stops before a text that is too large or too deep takes long: the scanner reads only as far as it is
        asked.
        """
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise _TooMuch(f"more than {MOST_NODES} keys and values", mark)
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise _TooMuch(_TOO_DEEP, mark)
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _TooMuch(Exception):
    """The text may be YAML, but it is no cluster file."""

    def __init__(self, summary: str, mark: Any) -> None:
        super().__init__(summary)
        self.mark = mark


def parse(text: str, name: str) -> Document:
    """The one document in `text`; its data is None when there is none.

    `name` stands for the file in places. Raises ConfigError when the text is not YAML or holds several documents.
    """
    try:
        loader = _Loader(text)
        loader.get_event()  # type: ignore[no-untyped-call]
        node = None if loader.check_event(StreamEndEvent) else loader.compose_document()
        if node is None:
            nowhere = Marks(Place(name), Place(name))
            return Document(None, {(): nowhere}, [])
        if not loader.check_event(StreamEndEvent):
            mark = loader.peek_event().start_mark  # type: ignore[no-untyped-call]
            summary = "a second document begins here; a cluster file holds one"
            raise ConfigError([Problem(_place(name, mark), summary, "keep one file each")])
        reader = _Reader(name)
        return Document(reader.read(node, ()), reader.marks, reader.problems)
    except _TooMuch as error:
        raise ConfigError([Problem(_place(name, error.mark), str(error), START)]) from error
    except yaml.YAMLError as error:
        raise ConfigError([syntax_problem(error, text, name)]) from error


_Pairs = dict[str, tuple[Node, Node]]
"""Text of a key -> the key and its value."""


class _Reader:
    """Turns nodes into data, and notes the place of each on the way."""

    def __init__(self, name: str) -> None:
        self.marks: dict[KeyPath, Marks] = {}
        self.problems: list[Problem] = []
        self._name = name
        self._open: set[int] = set()
        self._values = 0
        self._text = 0
        self._known_pairs: dict[int, _Pairs] = {}

    def read(self, node: Node, path: KeyPath, key: Node | None = None) -> Any:
        self._count(node, 1)
        self.marks[path] = Marks(self._place(key or node), self._place(node))
        if len(path) > MOST_DEPTH:
            raise self._too_much(node, _TOO_DEEP)
        if id(node) in self._open:
            self._report(node, "an alias refers to itself", _NO_ALIAS)
            return None
        if not isinstance(node, ScalarNode) and node.tag not in (_TAG + "map", _TAG + "seq"):
            self._report(node, f"the tag {_shown(node.tag)} is not known here", "leave the tag out")
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                pairs = self._pairs(node, path).items()
                return {text: self.read(value, (*path, text), key) for text, (key, value) in pairs}
            if isinstance(node, SequenceNode):
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.discard(id(node))

    def _count(self, node: Node, values: int) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise self._too_much(node, f"more than {MOST_VALUES} values, with those that aliases stand for")

    def _pairs(self, node: MappingNode, path: KeyPath) -> _Pairs:
        """The mapping's pairs, after those that merge keys bring in; found once for each node, however often merged."""
        if id(node) not in self._known_pairs:
            merged, own = self._merged_and_own(node, path)
            self._known_pairs[id(node)] = {**merged, **own}
        return self._known_pairs[id(node)]

    def _merged_and_own(self, node: MappingNode, path: KeyPath) -> tuple[_Pairs, _Pairs]:
        merged: _Pairs = {}
        own: _Pairs = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                self._merge(value, path, merged)
            elif not isinstance(key, ScalarNode) or key.tag == _NULL:
                self._report(key, "a key must be text", 'put a name that begins with a bracket in quotes: "[1-4]"')
            elif key.value in own:
                self._report_twice(key, own[key.value][0], path)
            else:
                own[key.value] = (key, value)
        return merged, own

    def _report_twice(self, key: ScalarNode, first_key: Node, path: KeyPath) -> None:
        first = self._place(first_key)
        where = f"line {first.line}, column {first.column}"
        self._report(key, f"{dotted((*path, key.value))} is here a second time; the first is at {where}", "keep one")

    def _merge(self, value: Node, path: KeyPath, merged: _Pairs) -> None:
        """Adds the pairs of what `<<` names; of several the first wins (yaml.org/type/merge.html)."""
        for source in value.value if isinstance(value, SequenceNode) else [value]:
            if not isinstance(source, MappingNode):
                self._report(source, "'<<' takes an alias of a mapping, or a list of such", "write <<: *name")
            elif id(source) in self._open:
                self._report(source, "an alias refers to itself", _NO_ALIAS)
            else:
                self._open.add(id(source))
                pairs = self._pairs(source, path)
                self._open.discard(id(source))
                self._count(source, len(pairs) + 1)
                for text, pair in pairs.items():
                    merged.setdefault(text, pair)

    def _scalar(self, node: Node) -> Scalar | None:
        text: str = node.value
        self._text += len(text)
        if self._text > MOST_TEXT:
            raise self._too_much(node, f"the values have more than {MOST_TEXT} characters together")
        if node.tag == _NULL:
            return None
        try:
            value = _construct(node.tag, text)
        except (ValueError, KeyError):
            self._report(
                node, f"the tag {_shown(node.tag)} does not fit {text!r}, or is not known here", "leave the tag out"
            )
            return None
        return Scalar(value, text)

    def _report(self, node: Node, summary: str, hint: str = "") -> None:
        problem = Problem(self._place(node), summary, hint)
        if problem not in self.problems:
            self.problems.append(problem)
        if len(self.problems) >= MOST_PROBLEMS:
            raise ConfigError(self.problems)

    def _too_much(self, node: Node, summary: str) -> ConfigError:
        return ConfigError([*self.problems, Problem(self._place(node), summary)])

    def _place(self, node: Node) -> Place:
        return _place(self._name, node.start_mark)


def _place(name: str, mark: Any) -> Place:
    return Place(name, mark.line + 1, mark.column + 1)


def _shown(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _construct(tag: str, text: str) -> bool | int | float | str:
    """Raises ValueError or KeyError when an explicit tag does not fit its text."""
    if tag in (_STR, _MERGE):
        return text
    if tag == _BOOL:
        return {"true": True, "false": False}[text.lower()]
    if tag == _INT:
        return _integer(text)
    if tag == _FLOAT:
        return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text.lower()))
    raise KeyError(tag)


def _integer(text: str) -> int | str:
    if len(text) > LONGEST_NUMBER:
        return text
    if text[:2] in ("0o", "0x"):
        return int(text[2:], 8 if text[1] == "o" else 16)
    return int(text)
