"""docs/nightly.md: the last result of each part, in a table that is read back to keep those of the other parts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.tables import read_table, replace_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "nightly.md"
BEGIN, END = "<!-- the table is written by `make nightly` -->", "<!-- end of the table -->"
HEAD = ("part", "result", "when", "commit", "took", "what was seen")
WRITTEN_BY_ITSELF = ("docs/nightly.md", "docs/faults.md", "docs/performance.md")


@dataclass(frozen=True)
class Row:
    part: str
    result: str = "not run"
    when: str = ""
    commit: str = ""
    took: str = ""
    seen: str = ""

    def cells(self) -> tuple[str, ...]:
        cells = (self.part, self.result, self.when, self.commit, self.took, _short(self.seen))
        return tuple(cell.replace("|", "/").replace("\n", " ") for cell in cells)


def _short(text: str, most: int = 300) -> str:
    return text if len(text) <= most else text[:most] + " ..."


def rows(page: Path | None = None) -> dict[str, Row]:
    found = [Row(*cells) for cells in read_table(page or PAGE, BEGIN, END)]
    return {row.part: row for row in found}


def write(parts: Iterable[str], new: Mapping[str, Row], page: Path | None = None) -> None:
    """Every part has a row: a new one, the one that it had, or one that says that it has not run."""
    page = page or PAGE
    old = rows(page)
    table = [(new.get(part) or old.get(part) or Row(part)).cells() for part in parts]
    replace_table(page, BEGIN, END, HEAD, table)


def commit(root: Path = PAGE.parents[1]) -> str:
    """The short name of what is checked out, and whether files differ from it."""
    name = _git(root, "rev-parse", "--short=10", "HEAD").strip()
    changed = [line[3:] for line in _git(root, "status", "--porcelain").splitlines()]
    return name + (" and changes" if any(file not in WRITTEN_BY_ITSELF for file in changed) else "")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout
