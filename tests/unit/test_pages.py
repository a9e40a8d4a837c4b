"""What is written for people: lines that fit beside an editor, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *(ROOT / "docs").glob("*.md")]
COLUMNS = 100


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are neither code nor rows of a table."""
    fenced = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not (fenced or line.startswith(("|", "    "))):
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_end_at_a_hundred_columns(page: Path) -> None:
    # one long word, such as a link, cannot end before
    long = [(number, line) for number, line in prose(page) if len(line) > COLUMNS and " " in line.lstrip("-* ")]
    assert long == [], "make docs fills them"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_of_the_project_leads_there(page: Path) -> None:
    text = " ".join(line for _, line in prose(page)) + " ".join(re.findall(r"^\|.*", page.read_text(), re.MULTILINE))
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
