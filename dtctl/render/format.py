"""Numbers as people read them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import TypeVar

from dtctl.config.ranges import fold as fold
from dtctl.model import grouped

T = TypeVar("T")

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size(count: float) -> str:
    """1536 -> 1.5 kB (powers of 1000, as disks and networks count)."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def duration(seconds: float) -> str:
    """The two largest units: 75 -> 1m15s."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(0, int(seconds))
    days, whole = divmod(whole, 86400)
    hours, whole = divmod(whole, 3600)
    minutes, rest = divmod(whole, 60)
    parts = [(days, "d"), (hours, "h"), (minutes, "m"), (rest, "s")]
    shown = [f"{count}{unit}" for count, unit in parts if count]
    return "".join(shown[:2]) or "0s"


def share(value: float, low: float, high: float, flat: float = 0.0) -> float:
    """Where a number lies between two others, from 0 to 1; `flat` where those are the same."""
    across = high / 2 - low / 2  # the whole may be more than a number can hold
    return (value / 2 - low / 2) / across if across > 0 else flat


def number(text: str | None) -> float | None:
    """Of a loss in the digits of its log; `nan` is one."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def count(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def iso_utc(epoch_s: float | None) -> str | None:
    """RFC 3339 in UTC, for machines."""
    if epoch_s is None:
        return None
    try:
        return datetime.fromtimestamp(epoch_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a host's clock may be at a year that no calendar has
        return None


def local_time(epoch_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    try:
        return time.strftime(form, time.localtime(epoch_s))
    except (ValueError, OverflowError, OSError):
        return "?"


MOST_NAMED = 60
"""Characters of folded names that a person reads through."""


def summarize_hosts(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """Hosts with whom all is well: gpu-[1-4]; or, scattered as they are where others have failed, only `270 hosts`."""
    known = list(names)
    folded = fold(known)
    return folded if len(known) == 1 or len(folded) <= most else count(len(known), "host")


def by_value(answers: Mapping[str, T]) -> dict[T, list[str]]:
    """What hosts answer, and which of them answer it."""
    return grouped((answer, host) for host, answer in answers.items())


def spans(numbers: Iterable[int], between: str = ",") -> str:
    """0-3,5, as commands take the indexes of tasks."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return between.join("-".join(map(str, span)) for span in found)
