"""Docstrings are sentences or name the thing; test names are short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READ = sorted([*(ROOT / "dtctl").rglob("*.py"), *(ROOT / "tests/hosts").rglob("*.py"), *(ROOT / "tests").glob("*.py")])
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
MOST_CHARACTERS = 80

NEVER_FIRST = re.compile(
    r"(?:Again|Against|Along|Also|Among|As|At|Beside|Besides|By|Empty|Enough|Except|For|From|Good|However|Instead|Less"
    r"|Near|Not|Of|Off|On|Out|Per|Safe|So|Than|Through|To|Unlike|Up|With|Yet)\b"
)
"""A docstring begins with who acts, with the verb, or with the thing that is returned, and not with one of these."""

MAIN_CLAUSE_FOLLOWS = re.compile(
    r"(?:Above|After|Although|Because|Before|Below|Between|Beyond|During|If|In|Inside|Once|Outside|Over|Since|Though"
    r"|Under|Unless|Until|While|Within|Without)\b"
)
"""After one of these, a comma has to separate what comes first from the main clause."""

NAMES_THE_THING = ("At least ", "At most ", "Less than ", "Since when ")
"""A quantity, or a time: noun phrases all the same."""


def fragment(text: str) -> str | None:
    """Why the first sentence of a docstring has no main clause; None if it has one, or names the thing."""
    sentence = re.split(r"(?<=[.!?:;])\s", " ".join(text.split()))[0]
    if sentence.startswith(NAMES_THE_THING):
        return None
    if first := NEVER_FIRST.match(sentence):
        return f"begins with {first[0]!r}"
    if (first := MAIN_CLAUSE_FOLLOWS.match(sentence)) and "," not in sentence:
        return f"begins with {first[0]!r}, and no main clause follows after a comma"
    return None


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring, also of those below an assignment."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for before, statement in zip([None, *body], body, strict=False) if isinstance(body, list) else ():
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                continue
            owned = before is None and not isinstance(node, ast.If | ast.With | ast.For | ast.While | ast.Try)
            if isinstance(statement.value.value, str) and (owned or isinstance(before, ast.Assign | ast.AnnAssign)):
                yield statement.lineno, statement.value.value


def test_no_docstring_is_a_fragment() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {why}: {text.split(chr(10))[0]}"
        for path in READ
        for line, text in docstrings(path)
        if (why := fragment(text)) is not None
    ]
    assert not found, "say who acts, or name what is returned:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "Of one host.",
        "Of each port one, with who has it on the first of its hosts.",
        "Against the middle of the others: what is slow is not to pull it down.",
        "So long is tried again what a server that is overloaded or away refuses to a command that needs it.",
        "However often a program ends by one of these.",
        "So long a host is away before its machine is asked",
        "By the hosts' own states.",
        "Less the time in which the run was paused.",
        "In the order of the file.",
        "While a browser reads.",
        "Empty before it.",
    ],
)
def test_fragment_is_refused(text: str) -> None:
    assert fragment(text) is not None


@pytest.mark.parametrize(
    "text",
    [
        "The newest checkpoint.",
        "Whether the run can succeed only if this task succeeds.",
        "Hosts that the coordinator reports as unreachable.",
        "When the back-off ends.",
        "How long a required request is retried while the server is overloaded or unreachable.",
        "If connecting takes longer than this, the other hosts are asked who coordinates.",
        "At most 64 KiB of complete lines.",
        "Raises OSError.",
        "`path` None: the file of the user.",
        "forwards the socket",
    ],
)
def test_sentence_or_name_of_the_thing_is_accepted(text: str) -> None:
    assert fragment(text) is None


def test_docstrings_of_modules_classes_functions_and_values_are_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        '"""1"""\nx = 1\n"""2"""\nclass A:\n    """3"""\n    y: int\n    """4"""\n'
        '    def f(self):\n        """5"""\n        self.z = 1\n        """6"""\nif x:\n    "no docstring"\n'
    )
    assert sorted(text for _, text in docstrings(file)) == ["1", "2", "3", "4", "5", "6"]


def test_no_test_has_a_name_above_the_limit() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {len(node.name)} characters"
        for path in TESTS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and len(node.name) > MOST_CHARACTERS
    ]
    assert not found, f"a test's name says the case and the outcome in {MOST_CHARACTERS} characters:\n" + "\n".join(
        found
    )
