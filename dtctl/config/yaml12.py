"""YAML 1.2 with the core schema (yaml.org/spec/1.2.2, chapter 10.3), on PyYAML's parser.

PyYAML reads YAML 1.1: `no` is false, 2222:22 is 133342, 017 is 15, and of two equal keys the last wins in silence. Here
only true and false are booleans, and a second key is refused. Anchors and merge keys (`<<`) are kept, although 1.2 has
dropped the latter: files with several similar jobs read better with them, and other tools of the field accept them.
"""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.events import StreamEndEvent
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dtctl.config.document import Document, Marks, Path, Scalar, dotted
from dtctl.config.syntax import second_document, syntax_problem
from dtctl.errors import ConfigError, Place, Problem

MOST_VALUES = 50_000
"""Aliases of aliases multiply (the `billion laughs`); no cluster has this many settings."""

_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (_TAG + name for name in ("null", "bool", "int", "float", "str", "merge"))
_PATTERNS = (
    (_NULL, re.compile(r"null|Null|NULL|~|")),
    (_BOOL, re.compile(r"true|True|TRUE|false|False|FALSE")),
    (_INT, re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")),
    (_FLOAT, re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")),
    (_MERGE, re.compile(r"<<")),
)


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the plain scalars of the core schema."""

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is not ScalarNode:
            return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]
        return _core_tag(value) if implicit[0] else _STR


def parse(text: str, name: str, *, places: bool = True) -> Document:
    """The one document in `text`; its data is None when there is none.

    `name` stands for the file in places; without `places` they hold nothing else. Raises ConfigError when the text is
    not YAML or holds several documents.
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
            raise second_document(Place(name, mark.line + 1, mark.column + 1) if places else Place(name))
        reader = _Reader(name, places=places)
        return Document(reader.read(node, ()), reader.marks, reader.problems)
    except yaml.YAMLError as error:
        raise ConfigError([syntax_problem(error, text, name, places=places)]) from error
    except RecursionError as error:
        raise ConfigError([Problem(Place(name), "brackets or mappings are nested too deeply")]) from error


class _Reader:
    """Turns nodes into data, and notes the place of each on the way."""

    def __init__(self, name: str, *, places: bool) -> None:
        self.marks: dict[Path, Marks] = {}
        self.problems: list[Problem] = []
        self._name = name
        self._places = places
        self._open: set[int] = set()
        self._count = 0

    def read(self, node: Node, path: Path, key: Node | None = None) -> Any:
        self._count += 1
        if self._count > MOST_VALUES:
            raise ConfigError([Problem(self._place(node), "the aliases stand for too many values")])
        if id(node) in self._open:
            self._report(node, "an alias stands inside what it stands for")
            return None
        self.marks[path] = Marks(self._place(key or node), self._place(node))
        if not isinstance(node, ScalarNode) and node.tag not in (_TAG + "map", _TAG + "seq"):
            self._report(node, f"the tag {_shown(node.tag)} is not known here", "leave the tag out")
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._scalar(node)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        pairs, merged = self._pairs(node, path)
        return {text: self.read(value, (*path, text), key) for text, (key, value) in {**merged, **pairs}.items()}

    def _pairs(
        self, node: MappingNode, path: Path
    ) -> tuple[dict[str, tuple[Node, Node]], dict[str, tuple[Node, Node]]]:
        """The mapping's own pairs, and those that merge keys bring in."""
        pairs: dict[str, tuple[Node, Node]] = {}
        merged: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                # Of several merged mappings the first wins (yaml.org/type/merge.html).
                merged = {**self._merged(value, path), **merged}
            elif not isinstance(key, ScalarNode) or key.tag == _NULL:
                self._report(key, "a key must be text", 'put a name that begins with a bracket in quotes: "[1-4]"')
            elif key.value in pairs:
                first = self._place(pairs[key.value][0])
                where = f" at line {first.line}, column {first.column}" if first.line else ""
                self._report(
                    key, f"{dotted((*path, key.value))} is here a second time; the first is{where}", "keep one"
                )
            else:
                pairs[key.value] = (key, value)
        return pairs, merged

    def _merged(self, value: Node, path: Path) -> dict[str, tuple[Node, Node]]:
        merged: dict[str, tuple[Node, Node]] = {}
        for source in value.value if isinstance(value, SequenceNode) else [value]:
            if not isinstance(source, MappingNode):
                self._report(source, "'<<' takes an alias of a mapping, or a list of such", "write <<: *name")
            elif id(source) in self._open:
                self._report(source, "an alias stands inside what it stands for")
            else:
                self._open.add(id(source))
                pairs, inner = self._pairs(source, path)
                self._open.discard(id(source))
                merged = {**inner, **pairs, **merged}
        return merged

    def _scalar(self, node: Node) -> Scalar | None:
        text: str = node.value
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

    def _place(self, node: Node) -> Place:
        if not self._places:
            return Place(self._name)
        return Place(self._name, node.start_mark.line + 1, node.start_mark.column + 1)


def _shown(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _core_tag(text: str) -> str:
    return next((tag for tag, pattern in _PATTERNS if pattern.fullmatch(text)), _STR)


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
    if text[:2] in ("0o", "0x"):
        return int(text[2:], 8 if text[1] == "o" else 16)
    # Python refuses to convert thousands of digits; no setting is such a number, so it is text.
    return int(text) if len(text) < 1000 else text
