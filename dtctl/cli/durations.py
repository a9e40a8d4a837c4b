"""Spans and moments on the command line: 30s, 5m, 2h, 2026-05-01T12:00."""

from __future__ import annotations

import re
from datetime import datetime

from dtctl.errors import UsageError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")


def seconds(text: str) -> float:
    """The length of a span; a bare number counts seconds."""
    match = _SPAN.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is not a span of time", hint="write 30s, 5m or 2h")
    return float(match[1]) * _UNITS[match[2] or "s"]


def seconds_ago(text: str, now: float) -> float:
    """The moment meant by `text`, in epoch seconds: a span before `now`, or an ISO 8601 time (local without a zone)."""
    if _SPAN.fullmatch(text):
        return now - seconds(text)
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise UsageError(f"{text!r} is neither a span nor a time", hint="10m, 2h or 2026-05-01T12:00:00") from None
