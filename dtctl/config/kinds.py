"""Kinds of values: the words that a person reads, how a value is read, and the JSON Schema of what is accepted.

pydantic is not used: each of its errors would have to be reworded and placed in the file, and importing it takes longer
than reading the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

from dtctl import durations
from dtctl.agent.records.values import ANY_URL, url_pattern
from dtctl.config.document import KeyPath, Scalar
from dtctl.dataclass import dataclass
from dtctl.errors import did_you_mean

LONGEST_TO_SPLIT = 10_000
"""Characters; `shlex` takes time with the square of a word."""
LARGEST_WHOLE = 2**53
"""The largest integer that JSON's numbers represent exactly."""
SMALLEST_BYTES = 10 * 10**6
_SIZE_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
SIZE_SCHEMA = r"^([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(MB|GB|TB)$"
_SIZE = re.compile(SIZE_SCHEMA)


class Unfit(Exception):
    """A value is not of its kind; `expected` replaces the words of the kind where more can be said."""

    def __init__(self, expected: str = "", hint: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.hint = hint


class Report(Protocol):
    """Is called with the place of a value that does not fit, the value, and what was expected. `key`: its name."""

    def __call__(self, path: KeyPath, found: Any, expected: str, hint: str = "", *, key: bool = False) -> None: ...


UNFIT: Any = object()
"""The result for an invalid value that was reported."""


@dataclass(frozen=True, eq=False)
class Kind:
    """Annotation of a key: reads what `yaml12` gives (Scalar, dict, list, None; plain text for keys)."""

    description: str
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]
    names: Mapping[str, object] = field(default_factory=dict)
    """Words with a meaning of their own, and the values that they stand for."""

    def take(self, raw: Any, path: KeyPath, report: Report, *, key: bool = False) -> Any:
        try:
            return self.read(raw)
        except Unfit as error:
            report(path, raw, error.expected or self.description, error.hint, key=key)
            return UNFIT


@dataclass(frozen=True, eq=False)
class ListOf:
    """A list, which becomes a tuple. With `split` one text does as well, and is split."""

    item: Kind
    said: str = ""
    split: Callable[[str], list[str]] | None = None
    may_be_empty: bool = False

    @property
    def description(self) -> str:
        return self.said or f"a list, each item {self.item.description}"

    @property
    def schema(self) -> Mapping[str, Any]:
        listed = {"type": "array", "items": self.item.schema}
        return {"anyOf": [{"type": ["string", "number"]}, listed]} if self.split else listed

    def take(self, raw: Any, path: KeyPath, report: Report) -> Any:
        if self.split is not None:
            try:
                raw = self._listed(raw, self.split)
            except Unfit as error:
                report(path, raw, error.expected or self.description, error.hint)
                return UNFIT
        if not isinstance(raw, list):
            report(path, raw, "a list")
            return UNFIT
        items = tuple(self.item.take(one, (*path, index), report) for index, one in enumerate(raw))
        return UNFIT if UNFIT in items else items

    def _listed(self, raw: Any, split: Callable[[str], list[str]]) -> Any:
        if isinstance(raw, Scalar):
            if len(raw.text) > LONGEST_TO_SPLIT:
                raise Unfit(f"{self.description}, of at most {LONGEST_TO_SPLIT} characters", "write a list")
            try:
                raw = [Scalar(word, word) for word in split(written(raw))]
            except ValueError as error:  # from shlex: a quotation without an end
                raise Unfit(f"{self.description} ({str(error).lower()})", "close the quotation") from error
        if not isinstance(raw, list) or not (raw or self.may_be_empty):
            raise Unfit()
        return raw


@dataclass(frozen=True, eq=False)
class MapOf:
    """A mapping under names of the user's own."""

    key: Kind
    value: AnyKind

    @property
    def description(self) -> str:
        return f"a mapping, each name with {self.value.description}"

    @property
    def schema(self) -> Mapping[str, Any]:
        return {
            "type": "object",
            "patternProperties": {self.key.schema["pattern"]: self.value.schema},
            "additionalProperties": False,
        }

    def take(self, raw: Any, path: KeyPath, report: Report) -> Any:
        if not isinstance(raw, dict):
            report(path, raw, MAPPING)
            return UNFIT
        taken = {
            self.key.take(name, (*path, name), report, key=True): self.value.take(one, (*path, name), report)
            for name, one in raw.items()
        }
        return {name: one for name, one in taken.items() if name is not UNFIT and one is not UNFIT}


class AnyKind(Protocol):
    """The interface of a Kind, a list, a mapping and a section."""

    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> Mapping[str, Any]: ...
    def take(self, raw: Any, path: KeyPath, report: Report) -> Any: ...


MAPPING = "a mapping (lines of KEY: VALUE)"


def written(raw: Any) -> str:
    """The text of a value as it is in the file; a number keeps its zeros."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, Scalar):
        raise Unfit()
    if "\0" in raw.text:
        # Neither an argument nor a variable nor a path can hold a NUL (execve(2)).
        raise Unfit("text without a NUL character")
    return raw.text


def text(description: str, pattern: str = "", hint: str = "") -> Kind:
    """A text that is not empty; true and false are refused, because they were hardly intended as text."""
    compiled = re.compile(pattern or r"(?s:.+)")

    def read(raw: Any) -> str:
        value = written(raw)
        if isinstance(raw, Scalar) and isinstance(raw.value, bool):
            raise Unfit(hint=f'put it in quotes if you mean the text: "{raw.text}"')
        if not compiled.fullmatch(value):
            raise Unfit(hint=hint)
        return value

    schema = {"pattern": f"^(?:{pattern})$"} if pattern else {"minLength": 1}
    return Kind(description, read, {"type": ["string", "number"], **schema})


def path(description: str, pattern: str, hint: str = "") -> Kind:
    """A path; a URL is refused, because `gs://bucket/x` would become a directory `gs:` below another one."""
    plain = text(description, f"(?!{ANY_URL}){pattern}", hint)

    def read(raw: Any) -> object:
        if re.match(ANY_URL, written(raw)):
            raise Unfit(f"{description}, and no URL", _file_path(written(raw)))
        return plain.read(raw)

    return Kind(description, read, plain.schema)


def place(a_path: Kind, schemes: Sequence[str]) -> Kind:
    """A path, or a storage URL with one of these schemes, which stays as it is written."""
    urls = text(f"a storage URL ({', '.join(f'{one}://' for one in schemes)})", url_pattern(schemes))
    description = f"{a_path.description}; or a storage URL such as {schemes[0]}://bucket/run"
    slip = rf"(?:{'|'.join(schemes)}):"

    def read(raw: Any) -> object:
        value = written(raw)
        scheme = value.partition(":")[0]
        if re.match(ANY_URL, value):
            try:
                return urls.read(raw)
            except Unfit as error:
                hint = _form_of(scheme) if scheme in schemes else _file_path(value) or did_you_mean(scheme, schemes)
                raise Unfit(urls.description, hint) from error
        if re.match(slip, value, re.IGNORECASE):
            raise Unfit(description, f"did you mean '{scheme.lower()}://{value.partition(':')[2].lstrip('/')}'?")
        return a_path.read(raw)

    no_slip = {**a_path.schema, "pattern": f"^(?!{slip}){a_path.schema['pattern'][1:]}"}
    return Kind(description, read, {"anyOf": [no_slip, urls.schema]})


def _form_of(scheme: str) -> str:
    return f"write {scheme}://NAME/PATH, without blanks, a variable, a password or what follows a ? or #"


def _file_path(url: str) -> str:
    """A hint for a `file:///` URL, which only names a path; empty for any other URL."""
    return f"write {url[7:]}" if url.startswith("file:///") else ""


def whole(minimum: int, maximum: int | None = None) -> Kind:
    description = (
        f"a whole number of {minimum} or more" if maximum is None else f"a whole number from {minimum} to {maximum}"
    )

    def read(raw: Any) -> int:
        value = raw.value if isinstance(raw, Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unfit()
        if raw.text.startswith("0") and raw.text.isdecimal() and len(raw.text) > 1:
            raise Unfit(hint=f"write {value}: a leading zero means an octal number to other readers")
        if value < minimum or (maximum is not None and value > maximum):
            raise Unfit()
        if value > LARGEST_WHOLE:
            raise Unfit(f"{description}, and at most {LARGEST_WHOLE}")
        return value

    limits = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    return Kind(description, read, {"type": "integer", **limits})


def choice(*names: str) -> Kind:
    description = f"{', '.join(names[:-1])} or {names[-1]}"

    def read(raw: Any) -> str:
        value = written(raw)
        if value not in names:
            raise Unfit(hint=did_you_mean(value, names))
        return value

    return Kind(description, read, {"enum": list(names)})


def named_or(names: Mapping[str, object], kind: Kind) -> Kind:
    """`kind`, or one of the names, for meanings that no value of the kind has."""
    description = f"{', '.join(names)} or {kind.description}"

    def read(raw: Any) -> object:
        if isinstance(raw, Scalar) and raw.text in names:
            return names[raw.text]
        try:
            return kind.read(raw)
        except Unfit as error:
            raise Unfit(description, error.hint) from error

    return Kind(description, read, {"anyOf": [{"enum": list(names)}, kind.schema]}, names)


def _read_flag(raw: Any) -> bool:
    value = raw.value if isinstance(raw, Scalar) else None
    if not isinstance(value, bool):
        raise Unfit()
    return value


FLAG = Kind("true or false", _read_flag, {"type": "boolean"})


def read_duration(raw: Any) -> float:
    """Seconds."""
    try:
        if isinstance(raw, Scalar) and isinstance(raw.value, (int, float)) and not isinstance(raw.value, bool):
            if not math.isfinite(raw.value) or raw.value < 0:
                raise Unfit()
            return durations.within_bounds(float(raw.value))
        return durations.seconds(written(raw))
    except durations.NoDuration as error:
        raise Unfit("" if str(error) == durations.WORDS else str(error)) from error


def read_size(raw: Any) -> int:
    """Bytes, in powers of 1000 as disks count."""
    match = _SIZE.fullmatch(written(raw))
    if match is None:
        raise Unfit()
    size = round(float(match[1]) * _SIZE_UNITS[match[2]])
    if size < SMALLEST_BYTES:
        raise Unfit(f"a size of at least {SMALLEST_BYTES // 10**6}MB")
    return size


def read_backoff(raw: Any) -> tuple[float, float]:
    """The shortest and the longest delay in seconds."""
    ends = [Scalar(end, end) for end in written(raw).split("..")] if ".." in written(raw) else [raw]
    first, last = read_duration(ends[0]), read_duration(ends[-1])
    if len(ends) > 2 or first > last:
        raise Unfit(hint="write the shortest delay first: 1s..60s")
    return first, last
