"""Spans and moments on the command line: 30s, 5m, 2h, 10:30, 2026-05-01T12:00."""

from __future__ import annotations

import re
from datetime import datetime, time

from dtctl import durations
from dtctl.durations import NoDuration
from dtctl.errors import UsageError

_OF_DAY = re.compile(r"\d\d:\d\d(:\d\d)?")


def seconds(text: str) -> float:
    """The length of a span; a bare number counts seconds."""
    try:
        return durations.seconds(text)
    except NoDuration as error:
        raise UsageError(f"{text!r} is not {error}", hint="write, for example, 30s") from error


def seconds_ago(text: str, now: float, option: str = "--since") -> float:
    """The moment meant by `text`, in epoch seconds: a span before `now`, a time of this day, or an ISO 8601 time.

    Without a zone it is local time.
    """
    try:
        return now - durations.seconds(text)
    except NoDuration as error:
        expected = str(error)
    try:
        return _moment(text, now).timestamp()
    except (ValueError, OverflowError):
        summary = f"{text!r} is not {expected}, nor a time such as 10:30 or 2026-05-01T12:00"
        raise UsageError(summary, hint=f"write, for example, {option} 10m") from None


def _moment(text: str, now: float) -> datetime:
    if _OF_DAY.fullmatch(text):
        return datetime.combine(datetime.fromtimestamp(now).date(), time.fromisoformat(text))
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
