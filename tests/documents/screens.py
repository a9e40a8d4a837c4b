"""Screens that pages show, and screens that commands print: the same but for what differs from one day to the next."""

from __future__ import annotations

import re
from collections.abc import Sequence

ELIDED = "..."
"""A line that stands for any lines, in a screen that a page shows."""

_MASKS = (
    (r"\b[\w.-]+-\d{8}-\d{6}-[0-9a-f]{4}\b", "RUN"),
    (r"SHA256:[A-Za-z0-9+/=]+", "FINGERPRINT"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?", "TIME"),
    (r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS"),
    (r"(?:~|/)[\w./@-]*/(?=dtctl/|\.ssh/|digits\b)", "HOME/"),
    (r"\b(model\.ckpt-)\d+", r"\1N"),
    (r"\bloss \S+", "loss X"),
    (r"\b[\d.]+ steps/s", "X steps/s"),
    (r"\b\d+(\.\d+)?\s?(bytes|kB|MB|GB)\b", "SIZE"),
    (r"\b(?:\d+(?:\.\d+)?(?:ms|[dhms]))+\b", "SPAN"),
    (r"\b\d+\.\d+\b", "X"),
    (r"\b(step|steps|made|wrote|loss|accuracy|PID|pid|process) \d+", r"\1 N"),
    (r"\b\d{2,}\b", "N"),
    (r"[─━-]{3,}", "---"),
    (r"\s+", " "),
    (r"^((?:ps|worker):\d \S+ running) .*", r"\1 ..."),  # a task has no rate before its second step
    (r"^goodput .*", "goodput ..."),  # where time went is another day's
)


def masked(line: str) -> str:
    for pattern, replacement in _MASKS:
        line = re.sub(pattern, replacement, line)
    return line.strip()


def differences(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """What a reader would wonder about; the order of lines of several hosts or tasks says nothing."""
    wanted = [masked(line) for line in shown if line.strip()]
    found = [masked(line) for line in printed if line.strip()]
    elided = ELIDED in wanted
    wanted = [line for line in wanted if line != ELIDED]
    missing = [f"shown, but not printed: {line}" for line in wanted if line not in found]
    surplus = [f"printed, but not shown: {line}" for line in found if line not in wanted]
    return missing + ([] if elided else surplus)


def shortened(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """What was printed now, in the form in which the page shows it: with as many lines before and after the gap."""
    if ELIDED not in shown:
        return list(printed)
    gap = list(shown).index(ELIDED)
    after = len(shown) - gap - 1
    return [*printed[:gap], ELIDED, *(printed[-after:] if after else [])]
