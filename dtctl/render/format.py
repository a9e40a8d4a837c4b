"""Numbers as text for people."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
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
    """The position of a number between two others, from 0 to 1; `flat` if those are the same."""
    across = high / 2 - low / 2  # the difference may exceed a float
    return (value / 2 - low / 2) / across if across > 0 else flat


def number(text: str | None) -> float | None:
    """The value of a loss in the digits of its log, where `nan` is a number."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def count(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def iso_utc(epoch_s: float | None) -> str | None:
    """The time in RFC 3339 in UTC, for machines."""
    if epoch_s is None:
        return None
    try:
        return datetime.fromtimestamp(epoch_s, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a host's clock may be at a year beyond the calendar
        return None


def local_time(epoch_s: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    try:
        return time.strftime(form, time.localtime(epoch_s))
    except (ValueError, OverflowError, OSError):
        return "?"


def clock(epoch_s: float) -> str:
    """The time of day, for use if the day is clear."""
    return local_time(epoch_s, "%H:%M:%S")


MOST_NAMED = 60
"""The most characters of folded names that a person reads."""


def summarize_hosts(names: Iterable[str], most: int = MOST_NAMED) -> str:
    """Hosts in one short text: gpu-[1-4]; if their names do not fit, only `270 hosts`."""
    known = list(names)
    folded = fold(known)
    return folded if len(known) == 1 or len(folded) <= most else count(len(known), "host")


def without_prefix(names: Sequence[str], between: str = "-") -> tuple[str, list[str]]:
    """The words that all names begin with, and the rest of each: `digits-20260105-`, `100001-3f2a`."""
    words = [name.split(between) for name in names]
    same = 0
    while len(names) > 1 and all(len(one) > same + 1 and one[same] == words[0][same] for one in words):
        same += 1
    return "".join(f"{word}{between}" for word in words[0][:same]) if same else "", [
        between.join(one[same:]) for one in words
    ]


def by_value(answers: Mapping[str, T]) -> dict[T, list[str]]:
    """The answers, each with the hosts that gave it."""
    return grouped((answer, host) for host, answer in answers.items())


def spans(numbers: Iterable[int], between: str = ",") -> str:
    """Numbers as commands take the indexes of tasks: 0-3,5."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][-1] == number - 1:
            found[-1] = [found[-1][0], number]
        else:
            found.append([number])
    return between.join("-".join(map(str, span)) for span in found)
