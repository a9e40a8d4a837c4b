"""The unified diff of two texts, in bounded time."""

from __future__ import annotations

import difflib
import time
from collections import Counter

_DIFF_S = 2.0
"""How long the comparison of two texts may take."""
_MOST_PAIRS = 2_000_000
"""The most pairs of equal lines in two files: difflib goes through all of them for each match."""
_CONTEXT = 3


def between_differences(old: str, new: str) -> tuple[str, ...] | None:
    """The lines that differ between the differences of two trees from one commit; None if it would take long."""
    lines = unified(old.splitlines(), new.splitlines(), "", "")
    return None if lines is None else tuple(line for line in lines[2:] if not line.startswith("@@ "))


def unified(before: list[str], after: list[str], old: str, new: str) -> list[str] | None:
    """The unified diff; None if it would take long. difflib is quadratic in lines that are repeated."""
    most = min(len(before), len(after))
    head = next((at for at in range(most) if before[at] != after[at]), most)
    tail = next((at for at in range(most - head) if before[-1 - at] != after[-1 - at]), most - head)
    start, cut = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)
    before, after = before[start : len(before) - cut], after[start : len(after) - cut]
    times = Counter(after)
    if sum(times[line] for line in before) > _MOST_PAIRS:
        return None
    try:
        groups = list(_Matcher(None, before, after).get_grouped_opcodes(_CONTEXT))
    except TimeoutError:
        return None
    lines = [f"--- {old}\n", f"+++ {new}\n"] if groups else []
    for group in groups:
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        lines.append(f"@@ -{_range(start + i1, i2 - i1)} +{_range(start + j1, j2 - j1)} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [f" {line}" for line in before[i1:i2]]
            else:
                lines += [f"-{line}" for line in before[i1:i2]]
                lines += [f"+{line}" for line in after[j1:j2]]
    return lines


class _Matcher(difflib.SequenceMatcher[str]):
    """It raises TimeoutError after a while: lines that are changed in turns take a pass through the file each."""

    _until: float | None = None

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        self._until = self._until or time.monotonic() + _DIFF_S
        if time.monotonic() > self._until:
            raise TimeoutError
        return super().find_longest_match(alo, ahi, blo, bhi)


def _range(before: int, count: int) -> str:
    """A range of lines as in a hunk's head: an empty one has the number of the line before it."""
    return f"{before + (count > 0)},{count}"


def lines_of(data: bytes) -> list[str]:
    return [line + "\n" for line in data.decode("utf-8", "replace").split("\n")[:-1]] + (
        [last] if (last := data.decode("utf-8", "replace").rpartition("\n")[2]) else []
    )
