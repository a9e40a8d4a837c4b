"""The parts of lies: a genuine frame, and the one that is sent in its place. Standard library only."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

Fields = dict[str, Any]
START = b"\x1e"


@dataclass(frozen=True)
class Said:
    """A genuine frame, and the request that it answers (empty: the greeting)."""

    asked: str
    fields: Fields
    payload: bytes = b""

    @property
    def name(self) -> str:
        """As in `log` or `status result`."""
        kind = str(self.fields["type"])
        return f"{self.asked} result" if kind == "result" else kind

    def encoded(self) -> bytes:
        whole = {**self.fields, "bytes": len(self.payload)} if self.payload else self.fields
        line = json.dumps(whole, separators=(",", ":")).encode() + b"\n"
        return (START if self.name == "greeting" else b"") + line + self.payload


Chunks = Iterable["bytes | None"]
Change = Callable[[Fields], object]


@dataclass(frozen=True)
class Lie:
    """`names`: the frames that it changes, as in `Said.name`, separated by commas; `*` is all except the greeting, and
    `* result` the result of any request."""

    names: str
    chunks: Callable[[Said], Chunks]

    def __call__(self, said: Said) -> Chunks:
        return self.chunks(said) if self.is_about(said.name) else [said.encoded()]

    def is_about(self, name: str) -> bool:
        if self.names == "*":
            return name != "greeting"
        return any(fnmatchcase(name, one) for one in self.names.split(", "))


HONEST = Lie("", lambda said: [])


def reported(names: str, change: Change) -> Lie:
    """Frames with changed fields."""

    def chunks(said: Said) -> Chunks:
        fields = copy.deepcopy(said.fields)
        change(fields)
        return [Said(said.asked, fields, said.payload).encoded()]

    return Lie(names, chunks)


MANY = "very many elements"


def told_many(names: str, change: Change, elements: Callable[[], Iterable[Any]]) -> Lie:
    """The same, with these elements where the change puts MANY into a list.

    Their text is made once, because encoding a million would delay the other hosts of this process for a second.
    """
    text = cache(lambda: json.dumps([*elements()], separators=(",", ":")).encode()[1:-1])
    few = reported(names, change)
    return Lie(names, lambda said: [chunk and chunk.replace(f'"{MANY}"'.encode(), text()) for chunk in few(said)])


def instead(names: str, chunks: Callable[[], Chunks]) -> Lie:
    """Bytes in place of frames."""
    return Lie(names, lambda said: chunks())


def before(names: str, chunks: Callable[[], Chunks]) -> Lie:
    return Lie(names, lambda said: itertools.chain(chunks(), [said.encoded()]))


def after(names: str, chunks: Callable[[], Chunks]) -> Lie:
    return Lie(names, lambda said: itertools.chain([said.encoded()], chunks()))


def payload(names: str, data: bytes, times: int = 1) -> Lie:
    """Frames with other payloads, repeated."""
    return Lie(names, lambda said: itertools.repeat(Said(said.asked, said.fields, data).encoded(), times))


def values(names: str, other: Callable[[Any], Any]) -> Lie:
    """Frames with all of their values replaced, at any depth; their types stay."""

    def change(fields: Fields) -> None:
        fields.update({name: replaced(one, other) for name, one in fields.items() if name != "type"})

    return reported(names, change)


def replaced(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return other({name: replaced(one, other) for name, one in value.items()})
    if isinstance(value, list):
        return other([replaced(one, other) for one in value])
    return other(value)


def only(kind: type, value: Any) -> Callable[[Any], Any]:
    """Replaces only values of this very type."""
    return lambda found: value if type(found) is kind else found


def put(**fields: Any) -> Change:
    return lambda frame: frame.update(fields)


def within(path: str, value: Any) -> Change:
    """Changes a nested value, if it exists: `path` as in `coordination.hosts.b`."""
    *way, last = path.split(".")

    def change(frame: Fields) -> None:
        place: Any = frame
        for name in way:
            place = place[int(name)] if isinstance(place, list) else place.get(name)
            if not place:
                return
        place[last] = value

    return change


def without(name: str) -> Change:
    return lambda frame: frame.pop(name, None)


def line(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def forever(chunk: bytes) -> Callable[[], Chunks]:
    return lambda: itertools.repeat(chunk)


def once(*chunks: bytes | None) -> Callable[[], Chunks]:
    return lambda: chunks


def of_size(head: bytes, unit: bytes, size: int, tail: bytes) -> Callable[[], Chunks]:
    """A long line that is not kept in memory."""

    def chunks() -> Iterator[bytes]:
        many = unit * max(1, 65536 // len(unit))
        yield head
        for _ in range(size // len(many)):
            yield many
        yield tail

    return chunks
