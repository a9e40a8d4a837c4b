"""Durations as people write them, in a cluster file and on the command line: 500ms, 30s, 5m, 2h, 7d."""

from __future__ import annotations

import re

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PATTERN = r"([0-9]+(?:\.[0-9]+)?)(?:\s*(ms|s|m|h|d))?"
WORDS = "a duration such as 500ms, 30s, 5m or 2h, or a number of seconds"
LONGEST_S = 10 * 365 * 86400.0

_SPAN = re.compile(PATTERN)


class NoDuration(ValueError):
    """Its text says what was expected."""


def seconds(text: str) -> float:
    """The length of a duration; a bare number counts seconds. Raises NoDuration."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise NoDuration(WORDS)
    return within_bounds(float(match[1]) * UNITS_S[match[2] or "s"])


def within_bounds(seconds: float) -> float:
    """`seconds` unchanged. Raises NoDuration if they exceed the longest duration that can be meant."""
    if seconds > LONGEST_S:
        raise NoDuration(f"a duration of at most {LONGEST_S / UNITS_S['d']:g}d")
    return seconds


def duration_text(seconds: float) -> str:
    """`seconds` as a cluster file would give it: 600.0 is 10m."""
    unit = next((unit for unit in ("h", "m", "s") if seconds and seconds % UNITS_S[unit] == 0), "s")
    return f"{seconds / UNITS_S[unit]:g}{unit}"
