"""The maker of mutants: what it changes, what it leaves alone, and that a change takes effect where it is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.mutants import __main__ as mutants
from tests.mutants.making import Mutant, mutants_of
from tests.mutants.running import graft

SOURCE = '''\
from dataclasses import dataclass
from functools import cache, cached_property

LIMIT_S = 3.0
WORDS = ("a", 2)


class Box:
    size = 1

    def __init__(self, full: bool = False) -> None:
        self.full = full

    @property
    def room(self) -> int:
        return self.size - 1

    @cached_property
    def double(self) -> int:
        return self.size * 2


def least(one: int, other: int) -> int:
    """The lesser."""
    if one <= other and not one is None:
        return one
    return min(other, LIMIT_S)


@cache
def doubled(number: int) -> int:
    return number * 2


@dataclass(frozen=True)
class Topic:
    ask: object
    steps: int = 2


TOPIC = Topic(least, 2)
'''


def changes(source: str) -> list[tuple[str, str]]:
    return [(mutant.before, mutant.after) for mutant in mutants_of(source)]


def after(statement: str) -> list[str]:
    """What a statement of a function becomes."""
    return [each for _, each in changes(f"def f(a, b, c):\n    {statement}\n")]


@pytest.mark.parametrize(
    ("statement", "becomes"),
    [
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a and b or c", ["x = (a and b) and c", "x = (a or b) or c"]),
        ("x = not a", ["x = not not a"]),
        ("x = a + 1", ["x = a - 1", "x = a + 2"]),
        ("x = True", ["x = False"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = f(a, b)", ["x = f(b, a)"]),
        ("return a", ["return None"]),
        ("a.b = c", ["pass"]),
        ("raise a", ["pass"]),
        ("if a: b()", ["if not a:", "pass"]),
        ("x = b if a else c", ["x = b if not a else c"]),
    ],
)
def test_a_statement_is_changed_in_one_place(statement: str, becomes: list[str]) -> None:
    assert sorted(after(statement)) == sorted(becomes)


@pytest.mark.parametrize(
    "statement", ["return None", "log.note(a, 1)", "x: Literal[1] = a", 'x = "%d" % a', 'x = f"{a + 1}"', '"""2"""']
)
def test_what_only_words_would_show_is_left_alone(statement: str) -> None:
    assert after(statement) == []


def test_a_modules_own_numbers_stay_and_the_rest_of_it_does_not() -> None:
    assert ("WORDS = ('a', 2)", "WORDS = ('a', 3)") in changes(SOURCE)
    assert not any("LIMIT_S = " in before for before, _ in changes(SOURCE))


def test_a_change_keeps_the_lines_and_says_where_it_is() -> None:
    [mutant] = mutants_of("def f(a, b):\n    return f(\n        a\n        and b,\n    )\n")[1:]
    assert (mutant.before, mutant.after) == ("return f(a and b)", "return f(a or b)")
    assert (mutant.line, mutant.first, mutant.last) == (2, 2, 5)


@pytest.fixture
def module() -> Iterator[tuple[ModuleType, dict[str, Any]]]:
    """A module, and what another has imported of it."""
    made = ModuleType("mutants_example")
    made.__file__ = "mutants_example.py"
    sys.modules["mutants_example"] = made  # a dataclass looks there while it is made
    exec(compile(SOURCE, "mutants_example.py", "exec"), made.__dict__)
    other = ModuleType("mutants_importer")
    other.__dict__.update({name: value for name, value in vars(made).items() if not name.startswith("__")})
    sys.modules["mutants_importer"] = other
    yield made, vars(other)
    del sys.modules["mutants_example"], sys.modules["mutants_importer"]


@pytest.mark.parametrize(
    ("old", "new", "see", "before", "then"),
    [
        ("one <= other", "one > other", "least(1, 2)", 1, 2),
        ("LIMIT_S = 3.0", "LIMIT_S = 4.0", "LIMIT_S", 3.0, 4.0),
        ("LIMIT_S = 3.0", "LIMIT_S = 4.0", "least(9, 8)", 3.0, 4.0),
        ("size = 1", "size = 2", "Box().room", 0, 1),
        ("self.size - 1", "self.size + 1", "Box().room", 0, 2),
        ("self.size * 2", "self.size + 2", "Box().double", 2, 3),
        ("full: bool = False", "full: bool = True", "Box().full", False, True),
        ("number * 2", "number + 2", "doubled(5)", 10, 7),
        ("one <= other", "one > other", "TOPIC.ask(1, 2)", 1, 2),
        ("Topic(least, 2)", "Topic(2, least)", "TOPIC.ask == 2", False, True),
    ],
)
def test_a_graft_is_seen_by_every_importer_of_the_module(
    module: tuple[ModuleType, dict[str, Any]], old: str, new: str, see: str, before: object, then: object
) -> None:
    made, imported = module
    assert "doubled" in see or eval(see, imported) == before
    graft(made, SOURCE.replace(old, new))
    assert eval(see, imported) == then


def test_every_module_is_there_and_has_tests() -> None:
    assert [name for name in mutants.MODULES if not mutants.tests_of(name, mutants.ROOT)] == []


def test_survivors_that_are_explained_do_not_count_and_explanations_without_one_are_shown() -> None:
    known = mutants.Equivalents.read("# a comment\n\nm\n- a\n+ b\nIt is the same.\n\nm\n- c\n+ d\nSo is this.\n")
    survivors = [Mutant("a", "b", 1, 1, 1, ""), Mutant("x", "y", 2, 2, 2, "")]
    assert known.left_of("m", survivors) == survivors[1:]
    assert known.stale() == ["m: + d"]
    with pytest.raises(ValueError):
        mutants.Equivalents.read("m\n- a\n+ b\n")
