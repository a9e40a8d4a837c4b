"""Spans and moments on the command line: 30s, 5m, 2h, 2026-05-01T12:00."""

from __future__ import annotations

from datetime import datetime

from dtctl import durations
from dtctl.durations import NoDuration
from dtctl.errors import UsageError


def seconds(text: str) -> float:
    """The length of a span; a bare number counts seconds."""
    try:
        return durations.seconds(text)
    except NoDuration as error:
        raise UsageError(f"{text!r} is not {error}", hint="write, for example, 30s") from error


def seconds_ago(text: str, now: float) -> float:
    """The moment meant by `text`, in epoch seconds: a span before `now`, or an ISO 8601 time (local without a zone)."""
    try:
        return now - durations.seconds(text)
    except NoDuration as error:
        expected = str(error)
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        summary = f"{text!r} is not {expected}, nor a time such as 2026-05-01T12:00"
        raise UsageError(summary, hint="write, for example, --since 10m") from None
