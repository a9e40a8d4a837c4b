"""The agent is an island: it runs on Python 3.8 and needs nothing but the standard library and itself."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import dtctl.agent

ISLAND = Path(dtctl.agent.__path__[0])
SOURCES = sorted(ISLAND.rglob("*.py"))


def name(source: Path) -> str:
    return str(source.relative_to(ISLAND).with_suffix(""))


def imported(tree: ast.AST, depth: int = 1) -> set[str]:
    """Top-level names of all imports, wherever they stand; those that stay in the agent as '.'.

    `depth` is how many dots still stay in it.
    """
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = 1 <= node.level <= depth
            names.add("." if inside else (node.module or "..").partition(".")[0])
    return names


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_a_module_imports_the_standard_library_and_its_own_package_only(source: Path) -> None:
    depth = len(source.relative_to(ISLAND).parts)
    for_mypy = {"typing_extensions"} if name(source) == "records/kinds" else set()
    assert imported(ast.parse(source.read_text()), depth) <= {*sys.stdlib_module_names, ".", *for_mypy}


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_a_module_can_be_parsed_by_the_oldest_python(source: Path) -> None:
    ast.parse(source.read_text(), feature_version=(3, 8))


def test_the_bootstrap_holds_nothing_that_an_early_python_3_cannot_read() -> None:
    source = next(path for path in SOURCES if path.name == "bootstrap.py")
    tree = ast.parse(source.read_text(), feature_version=(3, 0))
    late = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Await)
    assert [node for node in ast.walk(tree) if isinstance(node, late)] == []
    assert "__future__" not in imported(tree)
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.cause is not None] == []


@pytest.mark.skipif(importlib.util.find_spec("vermin") is None, reason="vermin is not installed")
def test_no_api_is_newer_than_python_3_8() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "import vermin; vermin.main()", "-t=3.8-", "--no-tips", *map(str, SOURCES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout
