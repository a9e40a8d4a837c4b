"""The content of a YAML text, with the position of every key and value."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dtctl.agent.host.secrets import MASK, hide_text, hide_words, is_secret_name
from dtctl.dataclass import dataclass
from dtctl.errors import ConfigError, Place, Problem, UsageError, clipped

KeyPath = tuple[str | int, ...]
"""Keys and list indexes from the top of a document to one of its values."""


MOST_PROBLEMS = 50
"""More are not corrected in one go, and each takes time to find."""


@dataclass(frozen=True)
class Scalar:
    """A value that is neither empty nor a list nor a mapping. `text` is exactly what was written: 1.10, 1e-4."""

    value: bool | int | float | str
    text: str


@dataclass(frozen=True)
class Marks:
    """The positions of a key and of its value, or of an item of a list."""

    key: Place
    value: Place


@dataclass
class Document:
    """`data` consists of dicts with text keys, lists, Scalars and None; `problems` say what was left out of it."""

    data: Any
    marks: dict[KeyPath, Marks]
    problems: list[Problem]

    def find(self, loc: KeyPath) -> KeyPath:
        """`loc` without the steps that are not in the data: a single value may stand for a section."""
        path: list[str | int] = []
        data = self.data
        for step in loc:
            steps = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
            if step in steps:
                data = data[step]
                path.append(step)
        return tuple(path)

    def key_place(self, path: KeyPath) -> Place:
        return self.marks[self.find(path)].key

    def value_place(self, path: KeyPath) -> Place:
        """The position of the value; if it is not in the file, that of the mapping that should hold it."""
        found = self.find(path)
        marks = self.marks[found]
        return marks.value if found == path or isinstance(self.at(found), Scalar) else marks.key

    def at(self, path: KeyPath) -> Any:
        data = self.data
        for step in path:
            data = data[step]
        return data

    def graft(self, path: KeyPath, part: Document) -> None:
        """Puts `part` in place of the value at `path`; missing mappings on the way are made."""
        here = self.data
        top = part.marks[()]
        for depth, step in enumerate(path[:-1], start=1):
            if here.get(step) is None:
                here[step] = {}
                self.marks[path[:depth]] = top
            here = here[step]
        here[path[-1]] = part.data
        self.marks = {old: marks for old, marks in self.marks.items() if old[: len(path)] != path}
        self.marks.update({path + inner: marks for inner, marks in part.marks.items()})
        self.problems += part.problems


class Findings:
    """Collects every mistake, so that one run is enough to correct the file."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._problems = list(document.problems)
        self._lacks: list[Problem] = []
        self._doubts: list[Problem] = []
        self._spoiled: set[KeyPath] = set()

    def add(self, path: KeyPath, summary: str, hint: str = "", *, at_key: bool = False) -> None:
        self._problems.append(Problem(self._place(path, at_key), summary, hint))
        self._spoiled.add(path)
        if len(self._problems) >= MOST_PROBLEMS:
            self.or_raise()

    @contextmanager
    def refusals(self, *path: str | int, owner: str = "", at_key: bool = False) -> Iterator[None]:
        """Adds what a UsageError says within; `owner` stands for the place in its words."""
        try:
            yield
        except UsageError as error:
            self.add(path, f"{owner or self.name(*path)}: {error.summary}", error.hint, at_key=at_key)

    def lack(self, path: KeyPath, summary: str, hint: str = "") -> None:
        """A file that this machine does not have. Without it the cluster can be built, and the rest looked at."""
        self._lacks.append(Problem(self._place(path, False), summary, hint))
        self._spoiled.add(path)

    def doubt(self, path: KeyPath, summary: str, hint: str = "", *, at_key: bool = False) -> None:
        """Reports a value that may be intended, but is more likely a mistake."""
        self._doubts.append(Problem(self._place(path, at_key), summary, hint))

    @property
    def doubts(self) -> tuple[Problem, ...]:
        return tuple(sorted(set(self._doubts)))[:MOST_PROBLEMS]

    @property
    def doubts_and_problems(self) -> tuple[Problem, ...]:
        """Problems and doubts, for a command that shows a file that cannot be started yet."""
        return tuple(sorted({*self._doubts, *self._problems}))[:MOST_PROBLEMS]

    def _place(self, path: KeyPath, at_key: bool) -> Place:
        return self.document.key_place(path) if at_key else self.document.value_place(path)

    def has(self, *path: str | int) -> bool:
        """Whether `path`, or a value inside it, is already wrong, so that later checks would blame it unjustly."""
        return any(spoiled[: len(path)] == path for spoiled in self._spoiled)

    def __contains__(self, path: KeyPath) -> bool:
        """Whether the value at `path`, as a whole, is already wrong."""
        return path in self._spoiled

    def lacks_keys_of(self, key: str) -> bool:
        """Whether entries of the mapping `key` were left out, so that its names are not all known."""
        return any(spoiled[:1] == (key,) and len(spoiled) <= 2 for spoiled in self._spoiled)

    def names_in(self, key: str) -> list[str]:
        """The names in the mapping `key` as they stand in the file, right or wrong."""
        entries = self.document.data.get(key)
        return list(entries) if isinstance(entries, dict) else []

    def name(self, *path: str | int) -> str:
        """How messages call the value at `path`: as far as the file spells it out."""
        return dotted(self.document.find(path))

    def or_raise(self) -> None:
        """Raises ConfigError where no cluster can be built; then it has what is lacking as well."""
        if self._problems:
            raise ConfigError(list(dict.fromkeys([*self._problems, *self._lacks])), self.doubts)

    def or_raise_all(self) -> None:
        """Raises ConfigError if there are findings, even if only files are missing."""
        self._problems += self._lacks
        self.or_raise()


def as_text(data: Any) -> str:
    """How a message calls a value: by its text when it is short, else by its kind."""
    if data is None:
        return "empty"
    if isinstance(data, Mapping):
        return "a mapping" if data else "an empty mapping"
    if isinstance(data, list):
        return "a list" if data else "an empty list"
    text = data.text if isinstance(data, Scalar) else str(data)
    return clipped(text) if isinstance(data, Scalar) and not isinstance(data.value, str) else repr(clipped(text))


def dotted(path: KeyPath) -> str:
    """`path` as messages write it: jobs.ps.hosts[2]."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


_LEFT_OUT = ("hosts", "ssh", "hooks")
_LONGEST = 200


def settings_of(data: dict[Any, Any]) -> dict[str, str]:
    """Maps each key to its value as written, such as `trainer.args.rate` -> 0.1."""
    return {path: text for key, value in data.items() if key not in _LEFT_OUT for path, text in _flat(str(key), value)}


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(f"{path}.{key}", one)
    elif is_secret_name(path.rpartition(".")[2]) and path != "trainer.secrets":
        yield path, MASK
    elif isinstance(value, list) and all(isinstance(one, Scalar) for one in value):
        yield path, _short(" ".join(hide_words(one.text for one in value)))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _flat(f"{path}[{index}]", one)
    elif value is not None:
        yield path, _short(value.text)


def _short(text: str) -> str:
    """A long one with its digest, so that it differs where the texts do."""
    text = hide_text(text)
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{text[:_LONGEST]}... (sha256 {digest})"
