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
    "cli": {"cli", "render", "operations", "plan", "bundle", "transport", "config", "model", "durations", "errors"},
    "render": {"render", "operations", "plan", "bundle", "transport", "config", "model", "errors"},
    "operations": {"operations", "plan", "bundle", "transport", "config", "strategies", "places", "model", "errors"},
    "plan": {"plan", "config", "strategies", "model", "errors"},
    "bundle": {"bundle", "transport", "config", "secret_files", "places", "model", "errors"},
    "transport": {"transport", "config", "places", "model", "errors"},
    "config": {"config", "secret_files", "strategies", "places", "model", "durations", "errors"},
    "agent": {"agent"},
    "trainer": set(),
    "strategies": {"model"},
    "places": {"errors"},
    "model": {"errors"},
    "secret_files": set(),
    "durations": set(),
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


VISITED = (
    *("dtctl.agent.records", "dtctl.agent.host.secrets"),
    *("dtctl.agent.run.policy", "dtctl.agent.run.outcome", "dtctl.agent.run.run_events", "dtctl.agent.run.goodput"),
    *("dtctl.agent.run.cause", "dtctl.agent.run.hangs"),
)
"""What is pure in the agent, which says what both sides of a conversation have to agree on. The rest is only sent."""

BORROWED = (
    *("dtctl.agent.checkpoints.reading", "dtctl.agent.checkpoints.verifying", "dtctl.agent.checkpoints.tensor_bundle"),
    *("dtctl.agent.checkpoints.tensor_bundle", "dtctl.agent.checkpoints.formats"),
    "dtctl.agent.checkpoints.formats",
)
"""What reads checkpoints on hosts reads those of this machine, too, so that both are judged alike; for operations."""

PURE = {"__future__", "itertools", "json", "math", "re", "signal"}
"""What a pure module may import: nothing that knows of a file, a process, a socket or a clock."""

IMPURE = {"open", "input", "print", "exec", "eval", "compile", "__import__"}

VISITORS = {"model", "secret_files", "transport", "operations", "plan", "render", "cli"}

ROOMS = {
    "main": {"supervise", "survival", "hooks", "run", "host"},
    "requests": {
        *("coordinate", "survival", "logs", "dump", "bundles", "checkpoints", "metrics", "vitals", "checks"),
        *("run", "protocol", "host", "records"),
    },
    "supervise": {"coordinate", "survival", "logs", "dump", "checkpoints", "vitals", "run", "host", "records"},
    "coordinate": {"survival", "checkpoints", "hooks", "link", "run", "host", "records"},
    "survival": {"run", "host"},
    "hooks": {"run", "host", "records"},
    "logs": {"run", "protocol", "host", "records"},
    "dump": {"run", "host", "records"},
    "bundles": {"protocol", "host", "records"},
    "checkpoints": {"host", "records"},
    "metrics": {"host", "records"},
    "vitals": {"logs", "network", "run", "host", "records"},
    "checks": {"checkpoints", "survival", "vitals", "network", "run", "protocol", "host", "records"},
    "network": {"run", "host", "records"},
    "link": {"records"},
    "protocol": {"host", "records"},
    "run": {"host", "records"},
    "host": {"records"},
    "records": set(),
    "bootstrap": set(),
}
"""Which rooms of the agent a room may use."""

ENTRIES = {
    "coordinate": {"role"},
    "supervise": {"supervisor"},
    "survival": {"revival", "reboot", "systemd"},
    "logs": {"serving", "lines"},
    "dump": {"serving", "stacks", "threads"},
    "bundles": {"store", "tree", "working"},
    "checkpoints": {"reading", "repair", "progress", "directories", "serving", "storing"},
    "metrics": {"reading", "event_files"},
    "hooks": {"posting", "sender"},
    "vitals": {"gathering", "machine_load", "usage", "packages", "neighbours", "disks"},
    "link": {"hub", "dialer", "messages", "lines", "tls"},
    "protocol": {"conversation", "wire"},
    "checks": {"serving"},
}
"""The modules by which other rooms enter a room; of those that are not named here, all."""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    names = [name for name in imports_of(path) if name.startswith("dtctl.")]
    if layer in VISITORS:
        names = [name for name in names if not f"{name}.".startswith(tuple(f"{room}." for room in VISITED))]
    if layer == "operations":
        names = [name for name in names if not f"{name}.".startswith(tuple(f"{one}." for one in BORROWED))]
    own = [name.split(".")[1] for name in names]
    # `from dtctl import __version__` is everybody's.
    assert {name for name in own if not name.startswith("__")} <= MAY_IMPORT[layer]


def agent_imports(path: Path, tree: ast.AST | None = None) -> Iterator[tuple[str, str]]:
    """Room and module of every import of another module of the agent, wherever in the file, or in this tree of it."""
    inside = path.relative_to(PACKAGE / "agent").with_suffix("").parts
    for node in ast.walk(tree or ast.parse(path.read_text())):
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


def visited_modules() -> list[Path]:
    names = {path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in agent_modules()}
    return [path for path, name in names.items() if f"{name}.".startswith(tuple(f"{room}." for room in VISITED))]


@pytest.mark.parametrize("path", visited_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_a_controller_visits_in_the_agent_is_pure(path: Path) -> None:
    tree = _WithoutTypeChecking().visit(ast.parse(path.read_text()))
    nodes = list(ast.walk(tree))
    absolute = {name.split(".")[0] for node in nodes for name in _absolute(node)}
    relative = {f"{room}.{module}" for room, module in agent_imports(path, tree)}
    assert absolute <= PURE
    assert {f"dtctl.agent.{name}" for name in relative if not name.startswith("records.")} <= set(VISITED)
    assert not {node.id for node in nodes if isinstance(node, ast.Name)} & IMPURE
    assert _used_of("signal", nodes) <= {"Signals"}  # the names of signals alone


class _WithoutTypeChecking(ast.NodeTransformer):
    """What is there at run time."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        typing = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return node.orelse if typing else node


def _absolute(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []


def _used_of(module: str, nodes: list[ast.AST]) -> set[str]:
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == module}


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


def test_only_the_log_writes_to_an_agents_stderr() -> None:
    """It is a file on a disk that may be full, which ends whoever does not expect that."""
    assert [path.name for path in agent_modules() if "file=sys.stderr" in path.read_text()] == ["log.py"]
