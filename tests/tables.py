"""Tables of pages that are measured: between two marks of the page, the rest of which people write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def replace_table(page: Path, begin: str, end: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Writes the table between the lines `begin` and `end`."""
    lines = [head, ("---",) * len(head), *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    before, found, rest = page.read_text().partition(begin + "\n")
    assert found, f"{page} has no line {begin}"
    page.write_text(f"{before}{begin}\n\n{table}\n{end}\n{rest.partition(end + chr(10))[2]}")
