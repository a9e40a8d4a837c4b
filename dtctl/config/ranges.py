"""Names with ranges, as cluster tools write them: gpu-[1-4] stands for gpu-1, gpu-2, gpu-3 and gpu-4.

ClusterShell's NodeSet is no set of ours: it sorts names and drops repeated ones, sets no limit to [1-100000000], and
reads groups (`@all`) from files of the machine.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from dtctl.errors import UsageError, clipped
from dtctl.model import grouped

LIMIT = 10_000
"""The most names that one text may stand for; more is a typing error."""

LONGEST = 10_000_000
"""Characters that all of these names may have together."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NUMERIC_BRACKETS = re.compile(r"\[([0-9][0-9,-]*)\]")
_PART = re.compile(r"(?:[^,\[]|\[[^\[\]]*\]|\[)*")
"""The text up to a comma outside brackets."""
_SPAN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBER = re.compile(r"([0-9]+)")


def expand(text: str) -> list[str]:
    """Every name that `text` stands for, in the order written: `a,n[08-10]` is a, n08, n09, n10."""
    count(text)
    return [name for part in _parts(text) for name in _product(part, _BRACKETS)]


def count(text: str) -> int:
    """How many names `expand` would make of it. Raises UsageError."""
    total = 0
    for part in _parts(text):
        if not part:
            hint = "write names with one comma between them: a,b"
            raise UsageError(f"{clipped(text)!r} has an empty name", hint=hint)
        if any(mark in _BRACKETS.sub("", part) for mark in "[]"):
            raise UsageError(f"{clipped(part)!r} has an unmatched bracket", hint="write ranges as in gpu-[1-4]")
        total += _count(part, _BRACKETS)
        if total > LIMIT:
            raise _too_large(text)
    return total


def first_past(most: int, texts: Iterable[tuple[str, str, int]]) -> str | None:
    """The first owner in (owner, text, times) whose names exceed the limit; it expands no range."""
    total = 0
    for owner, text, times in texts:
        with suppress(UsageError):  # reported where it is expanded
            total += count(text) * times
        if total > most:
            return owner
    return None


def _parts(text: str) -> list[str]:
    """The text between the commas that stand outside of brackets."""
    parts, start = [], 0
    while start <= len(text):
        match = _PART.match(text, start)
        assert match is not None, "it may be empty"
        parts.append(match[0])
        start = match.end() + 1
    return parts


def expand_value(text: str) -> list[str] | None:
    """Every value that `text` stands for; None when it holds no range.

    Only brackets around numbers are ranges here, and commas separate nothing: `[fe80::1]` and `hop-a,hop-b` are values.
    """
    return _product(text, _NUMERIC_BRACKETS) if _NUMERIC_BRACKETS.search(text) else None


def fold(names: Iterable[str]) -> str:
    """The shortest usual way to write the names, sorted and each once: `gpu-[1-4],ps-a`. Inverse of `expand`."""
    rows = sorted({tuple(_NUMBER.split(name)) for name in names}, key=_natural_order)
    shapes = grouped((row[::2], row) for row in rows)
    return ",".join("".join(row) for shape in shapes.values() for row in _fold_shape(shape))


def _count(text: str, brackets: re.Pattern[str]) -> int:
    """Raises UsageError, also for too many."""
    count = 1
    for inside in brackets.findall(text):
        count *= sum(last - first + 1 for first, last, _ in _spans(inside, text))
        if count > LIMIT or count * len(text) > LONGEST:
            raise _too_large(text)
    return count


def _product(text: str, brackets: re.Pattern[str]) -> list[str]:
    _count(text, brackets)
    pieces = brackets.split(text)
    spans = [_spans(piece, text) for piece in pieces[1::2]]
    numbers = [[f"{n:0{width}d}" for first, last, width in row for n in range(first, last + 1)] for row in spans]
    literals = pieces[::2]
    return [
        literals[0] + "".join(number + literal for number, literal in zip(choice, literals[1:], strict=True))
        for choice in itertools.product(*numbers)
    ]


def _spans(inside: str, text: str) -> list[tuple[int, int, int]]:
    """(first, last, width) of each comma-separated span; a leading zero sets the width."""
    spans = []
    for span in inside.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise UsageError(
                f"{clipped(text)!r}: '[{inside[:60]}]' is not a range", hint="write numbers: [1-4], [01-12] or [1-3,5]"
            )
        first, last = match[1], match[2] or match[1]
        if int(first) > int(last):
            raise UsageError(f"{clipped(text)!r}: the range {span} runs backwards", hint=f"write {last}-{first}")
        if _is_padded(last) and len(last) != len(first):
            raise UsageError(
                f"{clipped(text)!r}: the ends of {span} have different numbers of digits", hint="write [01-12]"
            )
        width = len(first) if _is_padded(first) else 0
        spans.append((int(first), int(last), width))
    return spans


def _too_large(text: str) -> UsageError:
    return UsageError(f"{clipped(text)!r} expands to more than {LIMIT} names", hint="check the ends of the range")


def _natural_order(row: Sequence[str]) -> tuple[object, ...]:
    """Numbers by value, then by width; text between them by letters."""
    return tuple((int(piece), len(piece)) if index % 2 else piece for index, piece in enumerate(row))


def _fold_shape(rows: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Rows that differ in one number become one row, the last number first; so whole grids fold to one row."""
    for position in range(len(rows[0]) - 2, 0, -2):
        alike = grouped(((*row[:position], "", *row[position + 1 :]), row[position]) for row in rows)
        rows = [(*row[:position], _fold_numbers(numbers), *row[position + 1 :]) for row, numbers in alike.items()]
    return rows


def _fold_numbers(numbers: Sequence[str]) -> str:
    if len(numbers) == 1:
        return numbers[0]
    runs = sorted(_runs(numbers), key=lambda run: (int(run[0]), len(run[0])))
    return f"[{','.join('-'.join(run) for run in runs)}]"


def _runs(numbers: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The ends of each run of consecutive numbers of one padding. 10 continues 09 as well as 9."""
    padded = {len(number) for number in numbers if _is_padded(number)}
    by_width = grouped((len(number) if len(number) in padded else 0, int(number)) for number in numbers)
    for width, values in by_width.items():
        for _, run in itertools.groupby(enumerate(sorted(values)), key=lambda pair: pair[1] - pair[0]):
            members = [f"{value:0{width}d}" for _, value in run]
            yield (members[0], members[-1]) if len(members) > 1 else (members[0],)


def _is_padded(number: str) -> bool:
    return len(number) > 1 and number.startswith("0")
