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
    "cli": {"cli", "render", "operations", "plan", "bundle", "transport", "config", "model", "reach", "errors"},
    "render": {"render", "operations", "plan", "bundle", "transport", "config", "model", "reach", "errors"},
    "operations": {"operations", "plan", "bundle", "transport", "config", "ways", "places", "model", "reach", "errors"},
    "plan": {"plan", "config", "ways", "model", "reach", "errors"},
    "bundle": {"bundle", "transport", "config", "places", "model", "reach", "errors"},
    "transport": {"transport", "config", "places", "model", "reach", "errors"},
    "config": {"config", "ways", "model", "reach", "errors"},
    "agent": {"agent"},
    "trainer": set(),
    "ways": {"model"},
    "places": {"errors"},
    "model": {"reach", "errors"},
    "reach": set(),
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


VISITED = ("dtctl.agent.records",)
"""The agent's pure rooms, which say what both sides of a conversation have to agree on. The others are only sent."""

VISITORS = {"transport", "operations", "plan", "render", "cli"}

ROOMS = {
    "main": {"supervise", "survival", "run", "host"},
    "requests": {
        *("coordinate", "survival", "logs", "bundles", "checkpoints"),
        *("run", "protocol", "host", "records"),
    },
    "supervise": {"coordinate", "survival", "logs", "checkpoints", "run", "host", "records"},
    "coordinate": {"survival", "checkpoints", "link", "run", "host", "records"},
    "survival": {"run", "host"},
    "logs": {"run", "protocol", "host", "records"},
    "bundles": {"protocol", "host", "records"},
    "checkpoints": {"host", "records"},
    "link": {"records"},
    "protocol": {"host", "records"},
    "run": {"host", "records"},
    "host": {"records"},
    "records": set(),
    "bootstrap": set(),
}
"""Which rooms of the agent a room may use."""

ENTRIES = {
    "coordinate": {"role", "outcome"},
    "supervise": {"supervisor"},
    "survival": {"guard", "revival", "reboot", "logind"},
    "logs": {"serving", "tail"},
    "bundles": {"store", "incoming", "manifest", "tree"},
    "checkpoints": {"reading", "mending", "evidence"},
    "link": {"hub", "dialer", "messages", "lines", "tls"},
    "protocol": {"conversation", "wire"},
}
"""The modules by which other rooms enter a room; of those that are not named here, all."""

LARGEST_ROOM = 20
"""Files in a folder that a person opens."""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = [name for name in imports_of(path) if name.startswith("dtctl.")]
    if layer in VISITORS:
        names = [name for name in names if not f"{name}.".startswith(tuple(f"{room}." for room in VISITED))]
    own = [name.split(".")[1] for name in names]
    # `from dtctl import __version__` is everybody's.
    assert {name for name in own if not name.startswith("__")} <= MAY_IMPORT[layer]


def agent_imports(path: Path) -> Iterator[tuple[str, str]]:
    """Room and module of every import of another module of the agent, wherever in the file."""
    inside = path.relative_to(PACKAGE / "agent").with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            parts = [*inside[: len(inside) - node.level], *(node.module or "").split(".")]
            for alias in node.names:
                room, module, *_ = [*filter(None, parts), alias.name, ""]
                yield room, module


def agent_modules() -> list[Path]:
    return [path for path in modules() if path.relative_to(PACKAGE).parts[0] == "agent" and path.name != "__init__.py"]


@pytest.mark.parametrize("path", agent_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_agents_rooms_use_each_other_one_way_and_by_their_entries(path: Path) -> None:
    own = path.relative_to(PACKAGE / "agent").parts[0].removesuffix(".py")
    used = {(room, module) for room, module in agent_imports(path) if room != own}
    assert {room for room, _ in used} <= ROOMS[own]
    assert [f"{room}.{module}" for room, module in sorted(used) if module not in ENTRIES.get(room, {module})] == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in modules()}), ids=lambda path: path.name)
def test_no_folder_has_more_files_than_a_person_looks_over(folder: Path) -> None:
    assert len([path for path in folder.iterdir() if path.suffix == ".py"]) <= LARGEST_ROOM + 1


def test_only_the_ssh_modules_import_fabric_and_paramiko() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in modules()
        for name in imports_of(path)
        if name.split(".")[0] in ("fabric", "paramiko", "invoke")
    }
    assert users == {"transport"}


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["up", "--help"]])
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
