"""What is measured on pages: between two marks of the page, the rest of which people write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def replace_table(page: Path, begin: str, end: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Writes the table between the lines `begin` and `end`."""
    lines = [head, ("---",) * len(head), *rows]
    replace_part(page, begin, end, "\n".join(f"| {' | '.join(line)} |" for line in lines))


def replace_part(page: Path, begin: str, end: str, text: str) -> None:
    """Writes any text between these lines."""
    before, found, rest = page.read_text().partition(begin + "\n")
    assert found, f"{page} has no line {begin}"
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}\n{rest.partition(end + chr(10))[2]}")


def read_table(page: Path, begin: str, end: str) -> list[tuple[str, ...]]:
    """The rows of that table, without its head."""
    table = page.read_text().partition(begin)[2].partition(end)[0]
    lines = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line) for line in lines[2:]]
