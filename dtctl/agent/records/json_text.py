"""JSON from outside: what RFC 8259 knows and nothing else, and no number that takes long to read."""

from __future__ import annotations

import json
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, Union

_DIGITS = 20
"""Of an integer: more than any count or time has. Long ones take time that grows with the square of their length."""


MOST_BRACKETS = 1_000_000
"""Of a text: an empty object is 3 bytes of it and 72 of memory. Those that stand in texts count as well."""


def parse(text: Union[str, bytes]) -> Any:
    """The value. Raises ValueError, also for what is nested too deeply and for bytes that are not UTF-8."""
    whole = text if isinstance(text, str) else text.decode("utf-8")
    if len(whole) > MOST_BRACKETS and whole.count("{") + whole.count("[") > MOST_BRACKETS:
        raise ValueError("more than %d objects and lists" % MOST_BRACKETS)
    try:
        return _DECODER.decode(whole)
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


def _refuse(name: str) -> NoReturn:
    raise ValueError("%s is not a JSON number" % name)


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
