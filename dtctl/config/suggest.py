"""Did you mean: the nearest of the names that would have been right."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

MOST_CHOICES = 256
"""Each comparison takes some of the reader's time; of thousands of hosts the right one is hardly a typing slip away."""


def closest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The choice that `word` was most likely meant to be; None when none is as near as `cutoff`, from 0 to 1."""
    names = list(itertools.islice(choices, MOST_CHOICES))
    by_lower = {choice.lower(): choice for choice in names}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    if not matches:
        return None
    # Of two that differ in their capitals alone, the one that is written as the word is.
    return matches[0] if word.islower() and matches[0] in names else by_lower[matches[0]]


def did_you_mean(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint for an error; empty when nothing is near."""
    match = closest(word, choices, cutoff)
    return f"did you mean '{match}'?" if match is not None else ""
