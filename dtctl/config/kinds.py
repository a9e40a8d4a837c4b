"""Kinds of values: the words that a person reads, how a value is read, and the JSON Schema of what is accepted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dtctl import durations
from dtctl.config.document import Scalar
from dtctl.errors import did_you_mean

LONGEST_TO_SPLIT = 10_000
"""Characters; `shlex` takes time with the square of a word."""
LARGEST_WHOLE = 2**53
"""Beyond it JSON's numbers are not exact."""
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


@dataclass(frozen=True, eq=False)
class Kind:
    """Annotation of a pydantic field: reads what `yaml12` gives (Scalar, dict, list, None; plain text for keys)."""

    words: str
    read: Callable[[Any], object]
    schema: Mapping[str, Any]
    names: Mapping[str, object] = field(default_factory=dict)
    """Words with a meaning of their own, and the values that they stand for."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)

    def _validate(self, raw: Any) -> object:
        try:
            return self.read(raw)
        except Unfit as error:
            raise _unfit(error.expected or self.words, error.hint) from error


@dataclass(frozen=True, eq=False)
class OrText:
    """Annotation of a list: one text does as well, and is split."""

    split: Callable[[str], list[str]]
    words: str
    may_be_empty: bool = False

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._to_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": ["string", "number"]}, handler(schema)]}

    def _to_list(self, raw: Any) -> Any:
        if isinstance(raw, Scalar):
            if len(raw.text) > LONGEST_TO_SPLIT:
                raise _unfit(f"{self.words}, of at most {LONGEST_TO_SPLIT} characters", "write a list")
            try:
                raw = [Scalar(word, word) for word in self.split(written(raw))]
            except Unfit as error:
                raise _unfit(error.expected or self.words, error.hint) from error
            except ValueError as error:  # of shlex: a quotation without its end
                raise _unfit(f"{self.words} ({str(error).lower()})", "close the quotation") from error
        if not isinstance(raw, list) or not (raw or self.may_be_empty):
            raise _unfit(self.words)
        return raw


def _unfit(expected: str, hint: str = "") -> PydanticCustomError:
    return PydanticCustomError("unfit", "expected {expected}", {"expected": expected, "hint": hint})


def written(raw: Any) -> str:
    """The text of a value as it stands in the file; a number keeps its zeros."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, Scalar):
        raise Unfit()
    if "\0" in raw.text:
        # Neither an argument nor a variable nor a path can hold one (execve(2)).
        raise Unfit("text without a NUL character")
    return raw.text


def text(words: str, pattern: str = "", hint: str = "") -> Kind:
    """Text that is not empty; true and false are not taken for text, because they were hardly meant as such."""
    compiled = re.compile(pattern or r"(?s:.+)")

    def read(raw: Any) -> str:
        value = written(raw)
        if isinstance(raw, Scalar) and isinstance(raw.value, bool):
            raise Unfit(hint=f'put it in quotes if you mean the text: "{raw.text}"')
        if not compiled.fullmatch(value):
            raise Unfit(hint=hint)
        return value

    schema = {"pattern": f"^(?:{pattern})$"} if pattern else {"minLength": 1}
    return Kind(words, read, {"type": ["string", "number"], **schema})


URL = r"[A-Za-z][A-Za-z0-9+.-]*://"


def path(words: str, pattern: str, hint: str = "") -> Kind:
    """Text that is no URL: made a path, `gs://bucket/x` would be a directory `gs:` below another one."""
    plain = text(words, f"(?!{URL}){pattern}", hint)

    def read(raw: Any) -> object:
        if re.match(URL, written(raw)):
            raise Unfit(
                f"{words}, and no URL",
                "name a directory, such as one where it is mounted; a URL that the trainer opens itself belongs into "
                "trainer.args or trainer.env",
            )
        return plain.read(raw)

    return Kind(words, read, plain.schema)


def whole(minimum: int, maximum: int | None = None) -> Kind:
    words = f"a whole number of {minimum} or more" if maximum is None else f"a whole number from {minimum} to {maximum}"

    def read(raw: Any) -> int:
        value = raw.value if isinstance(raw, Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool):
            raise Unfit()
        if value < minimum or (maximum is not None and value > maximum):
            raise Unfit()
        if value > LARGEST_WHOLE:
            raise Unfit(f"{words}, and at most {LARGEST_WHOLE}")
        return value

    limits = {"minimum": minimum} if maximum is None else {"minimum": minimum, "maximum": maximum}
    return Kind(words, read, {"type": "integer", **limits})


def choice(*names: str) -> Kind:
    words = f"{', '.join(names[:-1])} or {names[-1]}"

    def read(raw: Any) -> str:
        value = written(raw)
        if value not in names:
            raise Unfit(hint=did_you_mean(value, names))
        return value

    return Kind(words, read, {"enum": list(names)})


def named_or(names: Mapping[str, object], kind: Kind) -> Kind:
    """`kind`, or one of the names, for meanings that no value of the kind has."""
    words = f"{', '.join(names)} or {kind.words}"

    def read(raw: Any) -> object:
        if isinstance(raw, Scalar) and raw.text in names:
            return names[raw.text]
        try:
            return kind.read(raw)
        except Unfit as error:
            raise Unfit(words, error.hint) from error

    return Kind(words, read, {"anyOf": [{"enum": list(names)}, kind.schema]}, names)


def read_flag(raw: Any) -> bool:
    value = raw.value if isinstance(raw, Scalar) else None
    if not isinstance(value, bool):
        raise Unfit()
    return value


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
