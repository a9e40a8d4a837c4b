"""Kinds of JSON values: mypy reads them as types, and `checked` validates received JSON by them at run time.

    class Exit(Record):
        code: Default[Optional[Count], None]

is a TypedDict to mypy. `checked` reads from it the fields of an Exit, their kinds and ranges, and the defaults of
absent ones; docs/generate.py makes a table from it. Annotations are evaluated at run time, so modules that define
records do without `from __future__ import annotations`.
"""

import json
import math
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Annotated as AtMost  # novm
    from typing import Annotated as Default  # novm
    from typing import Annotated as Pattern  # novm
    from typing import Annotated as Within  # novm
    from typing import Any, Callable, Dict, List, NoReturn, Optional, Tuple, Type, TypeVar, Union
    from typing import Literal as OneOf
    from typing import TypedDict as Record

    from typing_extensions import NotRequired  # novm: only mypy reads this branch

    R = TypeVar("R")
    Take = Callable[[Any], Any]

__all__ = [
    "AtMost",
    "Default",
    "Dict",
    "InvalidValue",
    "List",
    "NotRequired",
    "OneOf",
    "Optional",
    "Pattern",
    "Record",
    "Unshown",
    "Within",
    "also",
    "checked",
    "formerly",
    "made",
    "parse_json",
]

LONGEST_TEXT = 1 << 20
"""The most characters of a text without a limit of its own."""

MOST_ENTRIES = 20_000
"""The default limit of entries in a list or a mapping."""

MOST = 2**53
"""The largest integer that every JSON reader represents exactly (RFC 8259, section 6)."""

_SHOWN = 60


_DIGITS = 20
"""The most digits of an integer, more than any count or time has. Parsing takes quadratic time."""


MOST_BRACKETS = 1_000_000
"""The most brackets in a JSON text: an empty object is 3 bytes of it and 72 of memory. Those in strings count, too."""


def parse_json(text: "Union[str, bytes]", *, finite: bool = True) -> "Any":
    """The value of JSON as RFC 8259 has it, and of no number that takes long to read.

    `finite`: refuses NaN and Infinity, which are no JSON, but which Python writes for a loss that has diverged.
    Raises ValueError, also for what is nested too deeply and for bytes that are not UTF-8.
    """
    whole = text if isinstance(text, str) else text.decode("utf-8")
    if len(whole) > MOST_BRACKETS and whole.count("{") + whole.count("[") > MOST_BRACKETS:
        raise ValueError("more than %d objects and lists" % MOST_BRACKETS)
    try:
        return (_DECODER if finite else _PYTHONS).decode(whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number of %d digits" % len(digits))
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):  # as of 1e999
        raise ValueError("a number that is not finite")
    return number


def _refuse(name: str) -> "NoReturn":
    raise ValueError("%s is not a JSON number" % name)


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
_PYTHONS = json.JSONDecoder(parse_int=_integer)


class InvalidValue(Exception):
    """A value is invalid. The text names the field, what was expected and what was found."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(expected)
        self.path: "List[str]" = []
        self.expected = expected
        self.found = found

    @classmethod
    def at(cls, path: "Tuple[str, ...]", expected: str, found: object) -> "InvalidValue":
        """Creates the error for a rule about several fields, which names the path itself."""
        wrong = cls(expected, found)
        wrong.path = list(path)
        return wrong

    @property
    def field(self) -> str:
        """The path, as in `tasks.worker:1.attempt`; empty for the record itself."""
        return ".".join(self.path)

    def __str__(self) -> str:
        where = "%s: " % self.field if self.path else ""
        return "%sexpected %s, found %s" % (where, self.expected, _brief(self.found))


class Unshown:
    """Found in place of what may be a secret."""

    def __init__(self, description: str) -> None:
        self._description = description

    def __repr__(self) -> str:
        return self._description


class Missing:
    """Found where there is nothing."""

    def __repr__(self) -> str:
        return "nothing"


class Absent(Missing):
    """The default of a field that may be absent and then stays absent."""


def checked(kind: "Type[R]", raw: object) -> "R":
    """`raw`, as JSON gives it, as a value of this kind: a new one, with its fields and no other. Raises
    InvalidValue."""
    value: R = kind_of(kind).take(raw)
    return value


def made(record: "Type[R]", **fields: "Any") -> "R":
    """A record of these fields, and of what is usual for the others. Raises InvalidValue."""
    return checked(record, fields)


class Kind:
    """`take` returns the validated value or raises InvalidValue; `words` describes the kind for people.

    `parts` describes it for makers of examples: the sort of kind, its limits and the kinds inside.
    """

    __slots__ = ("description", "parts", "take")

    def __init__(self, description: str, take: "Take", *parts: "Any") -> None:
        self.description = description
        self.take = take
        self.parts = parts


_REQUIRED = Missing()
_ABSENT = Absent()
_kinds: "Dict[object, Kind]" = {}
_also: "Dict[object, List[Callable[[Any], None]]]" = {}
_former: "Dict[object, Dict[str, Tuple[str, Callable[[Any], Any]]]]" = {}


def also(record: "Type[R]") -> "Callable[[Callable[[R], None]], Callable[[R], None]]":
    """Decorator of a further rule for a record, about several of its fields: a function that raises InvalidValue."""

    def register(rule: "Callable[[R], None]") -> "Callable[[R], None]":
        _also.setdefault(record, []).append(rule)
        return rule

    return register


def formerly(record: "Type[R]", **names: "Union[str, Tuple[str, Callable[[Any], Any]]]") -> None:
    """Fields of a record, and their names in files of older versions, whose live runs are shown and stopped.

    With a function, which makes the value of now from the older one, where that was of another kind.
    """
    _former[record] = {name: (old, _same) if isinstance(old, str) else old for name, old in names.items()}


def _same(value: "Any") -> "Any":
    return value


def kind_of(annotation: object) -> Kind:
    """The kind of an annotation."""
    if isinstance(annotation, Kind):
        return annotation
    kind = _kinds.get(annotation)
    if kind is None:
        kind = _kinds[annotation] = _record(annotation)
    return kind


def fields_of(record: object) -> "Dict[str, Tuple[Kind, object]]":
    """Field -> its kind and its default (a Missing: it is required)."""
    found: "Dict[str, Tuple[Kind, object]]" = {}
    for one in reversed(record.__mro__):  # type: ignore[attr-defined]
        for name, annotation in one.__dict__.get("__annotations__", {}).items():
            if isinstance(annotation, _Field):
                found[name] = annotation.kind, annotation.value
            else:
                found[name] = kind_of(annotation), _REQUIRED
    return found


def _record(record: object) -> Kind:
    fields: "Tuple[Tuple[str, Take, object], ...]" = ()
    rules = _also.get(record, [])
    former = _former.get(record, {})

    def take(raw: "Any") -> "Dict[str, Any]":
        nonlocal fields
        if type(raw) is not dict:
            raise InvalidValue("an object", raw)
        if not fields:  # all at once: other threads may be here, too
            fields = tuple((name, kind.take, usual) for name, (kind, usual) in fields_of(record).items())
        if former:
            raw = {**{name: now(raw[old]) for name, (old, now) in former.items() if old in raw}, **raw}
        whole = {}
        for name, take_field, usual in fields:
            value = raw.get(name, usual)
            if value is _ABSENT:
                continue
            try:
                if value is _REQUIRED:
                    raise InvalidValue("a field of this name", value)
                whole[name] = take_field(value)
            except InvalidValue as wrong:
                wrong.path.insert(0, name)
                raise
        for rule in rules:
            rule(whole)
        return whole

    return Kind(record.__name__, take, "record", record)  # type: ignore[attr-defined]


def _simple(description: str, fits: "Callable[[Any], bool]", *parts: "Any") -> Kind:
    """The kind of values that stay unchanged."""

    def take(raw: "Any") -> "Any":
        if fits(raw):
            return raw
        raise InvalidValue(description, raw)

    return Kind(description, take, *parts)


def _whole(low: int, high: int) -> Kind:
    description = "a whole number from %d to %d" % (low, high) if high < MOST else "a whole number, %d or more" % low
    if low == high:
        description = "%d" % low
    return _simple(description, lambda raw: type(raw) is int and low <= raw <= high, "whole", low, high)


def _is_json(raw: "Any") -> bool:
    """Whether JSON has such a value: a list or a mapping as a whole, and no number that is not finite."""
    if isinstance(raw, list):
        return all(map(_is_json, raw))
    if isinstance(raw, dict):
        return all(type(name) is str for name in raw) and all(map(_is_json, raw.values()))
    return raw is None or type(raw) in (bool, str) or (type(raw) in (int, float) and -MOST <= raw <= MOST)


def _number(low: float, high: float) -> Kind:
    def fits(raw: "Any") -> bool:
        return (type(raw) is float or type(raw) is int) and low <= raw <= high  # false for a NaN

    return _simple("a number from %g to %g" % (low, high), fits, "number", low, high)


def _text(most: int) -> Kind:
    description = "text of at most %d characters" % most
    return _simple(description, lambda raw: type(raw) is str and len(raw) <= most, "text", most)


def _pattern(most: int, pattern: str, description: str) -> Kind:
    whole = r"(?:%s)\Z" % pattern  # compiled when it is used: a process needs few of them

    def fits(raw: "Any") -> bool:
        return type(raw) is str and len(raw) <= most and re.match(whole, raw) is not None

    return _simple(description, fits, "pattern", most, pattern)


def _one_of(*names: str) -> Kind:
    description = "one of " + ", ".join(names) if len(names) > 1 else repr(names[0])
    return _simple(description, lambda raw: type(raw) is str and raw in names, "one of", names)


def _optional(inner: Kind) -> Kind:
    take_inner = inner.take
    return Kind("null or " + inner.description, lambda raw: None if raw is None else take_inner(raw), "optional", inner)


def _list(inner: Kind, most: int = MOST_ENTRIES) -> Kind:
    description = "a list of at most %d" % most
    take_inner = inner.take

    def take(raw: "Any") -> "List[Any]":
        if type(raw) is not list or len(raw) > most:
            raise InvalidValue(description, raw)
        whole: "List[Any]" = []
        try:
            for one in raw:
                whole.append(take_inner(one))
        except InvalidValue as wrong:
            wrong.path.insert(0, str(len(whole)))
            raise
        return whole

    return Kind("%s: %s" % (description, inner.description), take, "list", inner, most)


def _mapping(names: Kind, inner: Kind, most: int = MOST_ENTRIES) -> Kind:
    description = "an object of at most %d entries" % most
    take_name, take_inner = names.take, inner.take

    def take(raw: "Any") -> "Dict[str, Any]":
        if type(raw) is not dict or len(raw) > most:
            raise InvalidValue(description, raw)
        name = ""
        whole = {}
        try:
            for name, one in raw.items():
                whole[take_name(name)] = take_inner(one)
        except InvalidValue as wrong:
            wrong.path.insert(0, _brief(name).strip("'"))
            raise
        return whole

    return Kind("an object {%s: %s}" % (names.description, inner.description), take, "mapping", names, inner, most)


def _at_most(kind: "Any", most: int) -> Kind:
    """Text of at most `most` characters, or a list or mapping of at most `most` entries."""
    if kind is str:
        return _text(most)
    if kind.parts[0] == "list":
        return _list(kind.parts[1], most)
    return _mapping(kind.parts[1], kind.parts[2], most)


def _brief(found: object) -> str:
    """A value for a message, however large it is."""
    if isinstance(found, (list, dict)):
        return "%s of %d" % ("a list" if isinstance(found, list) else "an object", len(found))
    if isinstance(found, str) and len(found) > _SHOWN:
        return "%s... (%d characters)" % (ascii(found[:_SHOWN])[:-1], len(found))
    if isinstance(found, int) and not -MOST < found < MOST:
        return "a whole number of %d bits" % found.bit_length()
    return ascii(found)


class _Field:
    """A kind with the default of an absent field."""

    def __init__(self, kind: Kind, value: object) -> None:
        self.kind = kind
        self.value = value


class _Generic:
    """Makes a kind, or a field, from the arguments in its brackets."""

    def __init__(self, make: "Callable[..., object]") -> None:
        self._make = make

    def __getitem__(self, given: object) -> object:
        return self._make(*given) if isinstance(given, tuple) else self._make(given)


if not TYPE_CHECKING:
    _kinds.update(
        {
            bool: _simple("true or false", lambda raw: raw is True or raw is False, "bool"),
            int: _whole(0, MOST),
            float: _number(-1e15, 1e15),
            str: _text(LONGEST_TEXT),
            object: _simple("a value of JSON", _is_json, "any"),  # whoever uses it checks the rest
        }
    )

    class Record:
        """Base of the classes whose annotations are the fields of a record; a call creates such a class."""

        def __new__(cls, name, fields):
            return type(name, (Record,), {"__annotations__": fields})

    Default = _Generic(lambda kind, value: _Field(kind_of(kind), value))
    """Default[KIND, VALUE]: a field that may be absent."""

    NotRequired = _Generic(lambda kind: _Field(kind_of(kind), _ABSENT))
    """NotRequired[KIND]: a field that may be absent, and has no default."""

    Within = _Generic(lambda kind, low, high: (_whole if kind is int else _number)(low, high))
    """Within[int, LOW, HIGH], or of float; both ends are included."""

    Pattern = _Generic(lambda _, most, pattern, description: _pattern(most, pattern, description))
    """Pattern[str, MOST, PATTERN, WORDS]: text of at most MOST characters that matches as a whole."""

    AtMost = _Generic(_at_most)
    """AtMost[KIND, N]"""

    OneOf = _Generic(_one_of)
    """OneOf[NAME, ...]: one of these strings."""

    Optional = _Generic(lambda inner: _optional(kind_of(inner)))
    """Optional[KIND]: null, or that."""

    List = _Generic(lambda inner: _list(kind_of(inner)))
    """List[KIND]"""

    Dict = _Generic(lambda names, inner: _mapping(kind_of(names), kind_of(inner)))
    """Dict[KIND OF NAME, KIND]"""
