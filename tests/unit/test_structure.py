"""Imports point one way, and what is slow to import is not imported at the start."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "dtctl"

MAY_IMPORT = {
    "cli": {"cli", "render", "operations", "plan", "bundle", "transport", "config", "model", "errors"},
    "render": {"render", "operations", "plan", "bundle", "transport", "config", "model", "errors"},
    "operations": {"operations", "plan", "bundle", "transport", "config", "ways", "places", "model", "errors"},
    "plan": {"plan", "config", "ways", "model", "errors"},
    "bundle": {"bundle", "transport", "config", "places", "model", "errors"},
    "transport": {"places", "transport", "config", "model", "errors"},
    "config": {"config", "ways", "model", "errors"},
    "agent": {"agent"},
    "trainer": set(),
    "ways": {"model"},
    "places": {"errors"},
    "model": {"errors"},
    "errors": set(),
    "__main__": {"cli"},
}


def imports_of(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


RECORDS = "dtctl.agent.records"
"""What both sides of a conversation have to agree on. Of the rest of the agent nobody imports anything: it is sent."""

MAY_IMPORT_RECORDS = {"transport", "operations", "plan"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = [name for name in imports_of(path) if name.startswith("dtctl.")]
    if layer in MAY_IMPORT_RECORDS:
        names = [name for name in names if not f"{name}.".startswith(f"{RECORDS}.")]
    own = [name.split(".")[1] for name in names]
    # `from dtctl import __version__` is everybody's.
    assert {name for name in own if not name.startswith("__")} <= MAY_IMPORT[layer]


def test_only_the_ssh_modules_import_fabric_and_paramiko() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in modules()
        for name in imports_of(path)
        if name.split(".")[0] in ("fabric", "paramiko", "invoke")
    }
    assert users == {"transport"}


@pytest.mark.parametrize("words", [["--help"], ["version"], ["up", "--help"]])
def test_help_and_version_import_nothing_slow(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from dtctl.cli import main\n"
        f"sys.argv = ['dtctl', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'fabric', 'paramiko', 'invoke', 'tensorflow', 'yaml', 'pathspec', 'cryptography'} & set(sys.modules)\n"
        "print('slow:', slow, file=sys.stderr)\n"
        "sys.exit(bool(slow))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
