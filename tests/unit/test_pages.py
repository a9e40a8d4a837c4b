"""What is written for people: lines that fit, links that lead somewhere, modules and tests that pages name, and
sentences.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dtctl.agent.rooms import EXCHANGES
from dtctl.agent.rooms import ROOMS as AGENT_ROOMS
from dtctl.cli.app import app
from dtctl.rooms import ROOMS
from dtctl.rooms.diagnose.signatures import SIGNATURES
from dtctl.secret_files import BY_NAME
from tests import golden
from tests.faults.scenarios import SCENARIOS
from tests.unit.test_structure import PARTS

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


MOST_WORDS = {"quickstart.md": 1200}
"""Of pages that are read from top to end before the first run; screens count."""


@pytest.mark.parametrize("page", MOST_WORDS)
def test_the_first_page_stays_short(page: str) -> None:
    assert len((ROOT / "docs" / page).read_text("utf-8").split()) <= MOST_WORDS[page]


def test_names_of_secrets_on_the_page_are_those_of_the_list() -> None:
    table = (ROOT / "docs" / "files.md").read_text("utf-8").partition("## Secrets and API keys")[2]
    cells = re.findall(r"^\| [^`|]+ \| (`[^|]+) \|$", table, re.MULTILINE)
    rules = [rule for cell in cells for rule in re.findall(r"(?<!not )`([^`]+)`", cell)]
    assert [rule for rule in rules if rule not in BY_NAME] == []
    assert [rule for cell in cells for rule in re.findall(r"not `([^`]+)`", cell) if f"!{rule}" not in BY_NAME] == []
    assert len(rules) > 30


def test_every_signature_has_a_title_of_its_own() -> None:
    titles = [one.title for one in SIGNATURES]
    assert [one.name for one in SIGNATURES if " " not in one.title or titles.count(one.title) > 1] == []


TYPED = re.compile(r"(?:^    |`)dtctl (?!link`)([a-z]+)((?: [^\s`]+)*)", re.MULTILINE)
"""A line of code, or code in a sentence; two blanks begin the words that explain it. `dtctl link` is a salt."""

HINT = re.compile(r"^    dtctl ([a-z]+)((?: \S+){0,4})(?:  .*)?$", re.MULTILINE)
"""A sentence that is no more than a command and what it does."""


def shown_commands() -> list[tuple[str, str, tuple[str, ...]]]:
    """Page, command and the options that it is shown with."""
    pages = [
        *((page.name, TYPED.findall(page.read_text())) for page in PAGES),
        ("the code", HINT.findall(golden.page(golden.sentences()))),
    ]
    found = set()
    for page, commands in pages:
        for name, arguments in commands:
            options = tuple(word for word in arguments.partition(" -- ")[0].split() if re.match(r"--?[a-zA-Z]", word))
            found.add((page, name, options))
    return sorted(found)


def test_commands_that_are_shown_exist_with_their_options() -> None:
    commands: Any = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {name: {option for param in command.params for option in param.opts} for name, command in commands.items()}
    wrong = [
        (page, name, options)
        for page, name, options in shown_commands()
        if name not in known or {option.partition("=")[0].rstrip(",;:.)") for option in options} - known[name]
    ]
    assert wrong == []
    assert len({name for _, name, _ in shown_commands()}) > 15


TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs" / "security-claims.md"
NAMED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text())


def test_every_claim_names_a_test_that_exists() -> None:
    assert [name for file, name in NAMED if not is_test(f"{file}::{name}")] == []
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "held by" not in line]
    assert len([row for row in rows if "::" in row]) == len(NAMED) > 50


PROMISES = (TESTS.parent / "docs" / "faults.md").read_text().partition("## Which fault tries")[2].partition("\n## ")[0]
UNTRIED = {"What no launcher can change"}
"""The sections of recovery.md that promise nothing."""


def test_every_promise_of_recovery_names_a_fault_that_tries_it() -> None:
    sections = re.findall(r"^## (.+)$", (TESTS.parent / "docs" / "recovery.md").read_text(), re.MULTILINE)
    assert [section for section in sections if f"**[{section}]" not in PROMISES] == sorted(UNTRIED)
    rows = [line for line in PROMISES.splitlines() if line.startswith("| ") and "tried by" not in line]
    tried = [row for row in rows if "**[" not in row]
    names = re.findall(r"`([^`]+)` \|$", PROMISES, re.MULTILINE)
    assert len(names) == len(tried) > 50
    scenes = {scenario.id for scenario in SCENARIOS}
    assert [name for name in names if name not in scenes and not is_test(name)] == []


def is_test(name: str) -> bool:
    file, _, test = name.partition("::")
    return (TESTS / file).is_file() and f"\ndef {test}(" in (TESTS / file).read_text()


TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
FORMATS = {
    f"{path.relative_to(TEMPLATES)}: {found[0]}": found[1]
    for path in sorted(TEMPLATES.rglob("*.py"))
    for found in re.finditer(r"loss \{[^{}]*:([^{}]+)\}", path.read_text())
}


def test_a_small_loss_keeps_its_digits_in_every_template() -> None:
    assert [of for of, form in FORMATS.items() if float(format(2.6e-08, form)) != 2.6e-08] == []
    assert {format(2.3025851, form) for form in FORMATS.values()} == {"2.303"}
    assert len(FORMATS) > 8


def found_in(code: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "module.py"
    file.write_text(code)
    return list(golden.of_file(file))


def test_the_table_is_large() -> None:
    found = golden.sentences()
    assert sum(map(len, found.values())) > 1000
    assert len(found) > 100


@pytest.mark.parametrize(
    ("code", "sentences"),
    [
        ('raise Refused("no_run", "there is no run")', ["there is no run"]),
        ('f"{host} is away"', ["{host} is away"]),
        ('x = "%s is away after %.0f s" % (host, now - since)', ["%s is away after %.0f s"]),
        (
            "x = f\"it is {'not here' if far else 'here'} now\"",
            ["it is {'not here' if far else 'here'} now", "not here"],
        ),
        ('say("one") if "-" in x else say("a whole sentence")', ["a whole sentence"]),
        ('@app.command()\ndef up() -> None:\n    """Start every task."""', ["Start every task."]),
    ],
)
def test_a_sentence_is_found(code: str, sentences: list[str], tmp_path: Path) -> None:
    assert found_in("_ = " + code if code.startswith("f") else code, tmp_path) == sentences


@pytest.mark.parametrize(
    "code",
    [
        '"""A docstring of two lines."""',
        'def up() -> None:\n    """Not a command."""',
        'assert x, "never shown to anybody"',
        're.compile("two words")',
        'x = f"{name}: {what}"',
        'x = f"tasks.{name}"',
        'x = "bold red"',
        'class X:\n    def __repr__(self) -> str:\n        return "X with %s of them" % self.y',
        'x: "list of things" = 1',
    ],
)
def test_unreachable_string_is_no_sentence(code: str, tmp_path: Path) -> None:
    assert found_in(code, tmp_path) == []


TRANSLATED = re.compile(r"goes on on|of (it|them) that (is|are) (its|their) own|has been had|that were none")
"""Turns of another language that have stood here."""


def test_no_sentence_has_the_order_of_another_language() -> None:
    texts = {"the code": golden.page(golden.sentences()), **{page.name: page.read_text() for page in PAGES}}
    found = {name: TRANSLATED.findall(" ".join(text.split())) for name, text in texts.items()}
    assert {name: turns for name, turns in found.items() if turns} == {}


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
NAMED_MODULES = sorted(set(re.findall(r"`((?:dtctl|tests)/[\w./]+)`", ARCHITECTURE)))
TWO_SCREENS = 145
"""Lines. A page that is longer is read by nobody before work."""


def test_the_files_that_the_page_names_exist() -> None:
    assert [path for path in NAMED_MODULES if not (ROOT / path).exists()] == []
    assert len(NAMED_MODULES) > 60


def test_every_request_is_on_the_page_of_the_agent() -> None:
    requests = (ROOT / "docs" / "agent.md").read_text().partition("## Requests")[2].partition("## The spec")[0]
    lacking = EXCHANGES.keys() - set(re.findall(r"\*\*(\w+)\*\*", requests))
    assert not lacking, f"docs/agent.md lacks {', '.join(lacking)}: write docstrings of the handlers, and make docs"


def test_every_part_of_the_agent_has_its_row() -> None:
    parts = {part for part in PARTS if (ROOT / "dtctl" / "agent" / part).is_dir()}
    assert set(re.findall(r"^\| `(\w+)/` \|", ARCHITECTURE, re.MULTILINE)) == parts


def test_the_page_names_every_room() -> None:
    listed = re.search(r"^    rooms:((?:.|\n)*?)and dtctl/api", ARCHITECTURE, re.MULTILINE)
    assert listed is not None
    assert {*listed[1].split()} == ROOMS.keys() | AGENT_ROOMS.keys()


def test_every_layer_of_the_controller_has_its_row() -> None:
    layers = {path.parent.name for path in (ROOT / "dtctl").glob("*/__init__.py")} - {"agent"}
    assert set(re.findall(r"^\| `dtctl/(\w+)/`", ARCHITECTURE, re.MULTILINE)) == layers


def test_the_page_fits_on_two_screens() -> None:
    assert len(ARCHITECTURE.splitlines()) <= TWO_SCREENS


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_readme_and_contributing_link_to_the_architecture_page(page: str) -> None:
    assert "(docs/architecture.md)" in (ROOT / page).read_text()


REPORTED = [ROOT / f"docs/{name}.md" for name in ("python-environments", "storage-urls", "gpus", "data")]
REPORTS = re.compile(r"^\|[^|\n]*report[^|\n]*\|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", re.MULTILINE)
OTHERS_WORDS = ("Error: ", "ERROR: ", "error: No solution found", "exit code 125 of a task")
"""What other programs print."""


def messages() -> Iterator[str]:
    """Patterns of whole messages: the meanings of signatures, and sentences of the code."""
    for file in (ROOT / "dtctl").rglob("signatures.ini"):
        table = configparser.ConfigParser(interpolation=None)
        table.read(file)
        for name in table.sections():
            pieces = re.split(r"(\{\w+\}|[][])", " ".join(table[name]["means"].split()))
            yield "".join(_PIECES.get(piece[:1], re.escape(piece)) for piece in pieces)
    for text in (one for texts in golden.sentences().values() for one in texts):
        for line in re.split(r"\\n|echo \"|; \"|\" >&2", text):
            yield ".+".join(map(re.escape, re.split(r"\{[^{}]*\}|%\w|\$[\w*]+", line)))


_PIECES = {"{": ".+", "[": "(?:", "]": ")?"}


def test_messages_that_pages_explain_are_those_of_the_code() -> None:
    known = [re.compile(pattern) for pattern in messages() if len(re.sub(r"\W|\.\+", "", pattern)) >= 8]
    tables = (table for page in REPORTED for table in REPORTS.findall(page.read_text()))
    rows = [row for table in tables for row in re.findall(r"^\| `([^`]+)`", table, re.M)]
    own = [row for row in rows if not row.startswith(OTHERS_WORDS)]
    assert len(own) > 25
    assert [row for row in own if not any(pattern.fullmatch(row) for pattern in known)] == []
