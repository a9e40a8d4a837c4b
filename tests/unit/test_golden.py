"""The sentences that users read are collected from the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import golden
from tests.unit.test_pages import PAGES


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
def test_what_nobody_reads_is_no_sentence(code: str, tmp_path: Path) -> None:
    assert found_in(code, tmp_path) == []


TRANSLATED = re.compile(r"goes on on|of (it|them) that (is|are) (its|their) own|has been had|that were none")
"""Turns of another language that have stood here."""


@pytest.mark.parametrize(
    "text",
    [golden.page(golden.sentences()), *(page.read_text() for page in PAGES)],
    ids=["code", *(page.name for page in PAGES)],
)
def test_no_sentence_has_the_order_of_another_language(text: str) -> None:
    assert TRANSLATED.findall(" ".join(text.split())) == []
