"""What is written for people: lines that fit beside an editor, links that lead somewhere, tests that pages name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dtctl.cli.app import app
from tests import golden

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


TYPED = re.compile(r"(?:^    |`)dtctl (?!link`)([a-z]+)((?: [^\s`]+)*)", re.MULTILINE)
"""A line of code, or code in a sentence; two blanks begin the words that explain it. `dtctl link` is a salt."""

HINT = re.compile(r"^    dtctl ([a-z]+)((?: \S+){0,4})(?:  .*)?$", re.MULTILINE)
"""A sentence that is no more than a command and what it does."""


def shown_commands() -> list[tuple[str, str, tuple[str, ...]]]:
    """Page, command and the options that it is shown with."""
    pages = [*((page.name, TYPED.findall(page.read_text())) for page in PAGES), *HINTS]
    found = set()
    for page, commands in pages:
        for name, words in commands:
            options = tuple(word for word in words.partition(" -- ")[0].split() if re.match(r"--?[a-zA-Z]", word))
            found.add((page, name, options))
    return sorted(found)


HINTS = [("the code", HINT.findall(golden.page(golden.sentences())))]


@pytest.mark.parametrize(("page", "name", "options"), shown_commands())
def test_a_command_that_is_shown_exists_with_its_options(page: str, name: str, options: tuple[str, ...]) -> None:
    group: Any = typer.main.get_command(app)
    assert name in group.commands, page
    known = {option for param in group.commands[name].params for option in param.opts}
    assert [option for option in options if option.partition("=")[0].rstrip(",;:.)") not in known] == []


def test_many_commands_are_shown() -> None:
    assert len({name for _, name, _ in shown_commands()}) > 15


TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "security.md"
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text())


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_the_test_that_holds_a_claim_is_there(file: str, test: str) -> None:
    assert f"\ndef {test}(" in (TESTS / file).read_text()


def test_every_claim_names_a_test() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "held by" not in line]
    claims = [row for row in rows if "::" in row]
    assert len(claims) == len(NAMED) > 50


TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
FORMATS = {
    f"{path.relative_to(TEMPLATES)}: {found[0]}": found[1]
    for path in sorted(TEMPLATES.rglob("*.py"))
    for found in re.finditer(r"loss \{[^{}]*:([^{}]+)\}", path.read_text())
}


def test_most_templates_print_a_loss() -> None:
    assert len(FORMATS) > 8


@pytest.mark.parametrize("of", FORMATS)
def test_a_small_loss_keeps_its_digits(of: str) -> None:
    assert float(format(2.6e-08, FORMATS[of])) == 2.6e-08
    assert format(2.3025851, FORMATS[of]) == "2.303"
